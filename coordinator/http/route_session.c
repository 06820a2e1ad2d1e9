/* POST and DELETE /v1/session, GET /v1/me: signing in by key, or once by the setup token, which
 * makes the first admin key. POST runs on a worker (a setup token writes to the database). Its
 * surprise: the setup token is spent before the key is stored, so that two requests cannot both use
 * it, and armed again when storing fails. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/respond.h"

#include <sodium.h>
#include <string.h>

#define SESSION_SECONDS (12 * 3600)
#define KEY_DAYS_MS (90ll * 24 * 3600 * 1000)
#define SETUP_AGAIN_MS (15 * 60 * 1000)

static json_t *describe(const struct auth_principal *principal)
{
    json_t *scopes = json_array();
    for (uint32_t bit = 1; scopes && bit <= SCOPE_ALL; bit <<= 1)
        if (principal->scopes & bit)
            json_array_append_new(scopes, json_string(auth_scope_name((enum auth_scope)bit)));
    return json_pack("{ss so}", "id", principal->id, "scopes", scopes);
}

/* 201 with the cookie; key: shown once, or NULL. */
static void open_session(struct request *request, const struct auth_principal *principal,
                         const char *key)
{
    char session[64];
    const char *origin = request_header(request, MHD_HTTP_HEADER_ORIGIN);
    bool over_tls = origin && strncmp(origin, "https://", 8) == 0;
    if (auth_session_create(request->http->auth, principal, session)) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
        return;
    }
    json_t *answer = describe(principal);
    if (key && answer)
        json_object_set_new(answer, "key", json_string(key));
    respond_json(request, MHD_HTTP_CREATED, answer);
    respond_header(request, MHD_HTTP_HEADER_SET_COOKIE,
                   "raven_session=%s; HttpOnly; SameSite=Strict; Path=/; Max-Age=%d%s", session,
                   SESSION_SECONDS, over_tls ? "; Secure" : "");
    sodium_memzero(session, sizeof session);
}

static enum status make_admin_key(struct request *request, char secret[AUTH_SECRET_BYTES],
                                  struct auth_principal *ret, struct error *err)
{
    struct http *http = request->http;
    struct store_key key = {.name = "admin", .scopes = SCOPE_ALL, .created_ms = clock_wall_ms()};
    key.expires_ms = key.created_ms + KEY_DAYS_MS;
    id_make(key.id, "key");
    auth_secret_make("sk", secret);
    auth_secret_hash(secret, key.hash);
    enum status status = store_key_create(http->store, &key, err);
    if (status == STATUS_OK)
        status = auth_key_add(http->auth, key.id, key.hash, key.scopes, key.expires_ms);
    if (status)
        return status;
    *ret = (struct auth_principal){.kind = PRINCIPAL_KEY, .scopes = key.scopes};
    text_copy(ret->id, sizeof ret->id, key.id);
    core_event(http->core, "key.created", "info", key.id, "the admin key was made by first setup");
    return STATUS_OK;
}

static void use_setup_token(struct request *request, const char *token)
{
    struct auth *auth = request->http->auth;
    char secret[AUTH_SECRET_BYTES];
    uint8_t hash[SHA256_BYTES];
    struct auth_principal principal;
    struct error err = {0};
    if (!auth_setup_use(auth, token)) {
        request_refuse_credential(request, "This setup link is wrong, was used or has expired; "
                                           "start the coordinator again for a new one.");
        return;
    }
    enum status status = make_admin_key(request, secret, &principal, &err);
    if (status == STATUS_OK) {
        open_session(request, &principal, secret);
    } else {
        auth_secret_hash(token, hash);
        auth_setup_arm(auth, hash, SETUP_AGAIN_MS);
        respond_status(request, status, &err);
    }
    sodium_memzero(secret, sizeof secret);
}

static void use_key(struct request *request, const char *key)
{
    struct auth_principal principal;
    if (auth_check_bearer(request->http->auth, key, &principal) ||
        principal.kind != PRINCIPAL_KEY) {
        request_refuse_credential(request, "This key is unknown, revoked or has expired.");
        return;
    }
    open_session(request, &principal, NULL);
}

void route_session_create(struct request *request)
{
    struct spec_complaints complaints = {0};
    json_t *json = request_json(request);
    if (!json)
        return;
    json_fields_known(json, "key setup_token", &complaints);
    const char *key = json_field_text(json, "key", AUTH_SECRET_BYTES, false, &complaints);
    const char *token = json_field_text(json, "setup_token", AUTH_SECRET_BYTES, false, &complaints);
    if (complaints.count == 0 && !key == !token)
        spec_complain(&complaints, "/key", "missing", "give either key or setup_token");
    if (complaints.count > 0)
        respond_complaints(request, "Not a way to sign in", &complaints);
    else if (key)
        use_key(request, key);
    else
        use_setup_token(request, token);
    json_decref(json);
    sodium_memzero(request->body.data, request->body.bytes);
}

void route_session_delete(struct request *request)
{
    char session[64];
    if (request->principal.kind == PRINCIPAL_BROWSER && request_session(request, session))
        auth_session_end(request->http->auth, session);
    respond_empty(request, MHD_HTTP_NO_CONTENT);
    respond_header(request, MHD_HTTP_HEADER_SET_COOKIE,
                   "raven_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
}

void route_me(struct request *request)
{
    respond_json(request, MHD_HTTP_OK, describe(&request->principal));
}
