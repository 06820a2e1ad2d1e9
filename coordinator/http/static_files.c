/* Loads and serves the dashboard. Loaded by main before the server starts, then read-only. Its
 * surprise: "x.gz" is not a file of its own but the compressed form of "x". */
#include "coordinator/http/static_files.h"

#include "common/base/bytes.h"
#include "coordinator/http/respond.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILES_MAX 64u
#define FILE_BYTES_MAX (8u * 1024 * 1024)
#define NAME_BYTES 128
#define HASH_DIGITS 8u /* a name with so many hex digits between '-' and '.' never changes */

struct static_file {
    char name[NAME_BYTES];
    char etag[2 + 32 + 1]; /* quoted, 128 bits of the SHA-256 */
    struct buffer plain, packed;
    bool is_immutable;
};

struct static_files {
    struct static_file files[FILES_MAX];
    uint32_t count;
};

static const char built_in_page[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>RAVEN</title></head>\n"
    "<body><h1>RAVEN coordinator</h1>\n"
    "<p>The coordinator runs, but its dashboard was not built or was not found. Build it with "
    "<code>cmake --build build --target web</code> and start the coordinator with "
    "<code>--web DIR</code>.</p>\n"
    "<p>Everything works without it through the REST API under <code>/v1</code>.</p>\n"
    "</body></html>\n";

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".ico", "image/x-icon"},
        {".json", "application/json"},
        {".txt", "text/plain; charset=utf-8"},
        {".woff2", "font/woff2"},
    };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < COUNT_OF(types); i++)
        if (strcmp(ending, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

/* "app-0123456789ab.js" */
static bool has_hash(const char *name)
{
    const char *dash = strrchr(name, '-');
    size_t digits = 0;
    while (dash && isxdigit((unsigned char)dash[1 + digits]))
        digits++;
    return digits >= HASH_DIGITS && dash[1 + digits] == '.';
}

static struct static_file *find(const struct static_files *files, const char *name)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return (struct static_file *)(uintptr_t)&files->files[i];
    return NULL;
}

static struct static_file *add(struct static_files *files, const char *name)
{
    struct static_file *file = find(files, name);
    if (file || files->count == FILES_MAX)
        return file;
    file = &files->files[files->count++];
    text_copy(file->name, sizeof file->name, name);
    file->is_immutable = has_hash(name);
    buffer_init(&file->plain, FILE_BYTES_MAX);
    buffer_init(&file->packed, FILE_BYTES_MAX);
    return file;
}

static void set_etag(struct static_file *file)
{
    uint8_t hash[SHA256_BYTES];
    char hex[33];
    sha256_of(file->plain.data ? file->plain.data : (const uint8_t *)"", file->plain.bytes, hash);
    hex_encode(hash, 16, hex);
    file->etag[0] = '"';
    memcpy(file->etag + 1, hex, 32);
    file->etag[33] = '"';
    file->etag[34] = 0;
}

static enum status load_file(struct static_files *files, const char *dir, const char *name,
                             struct error *err)
{
    char path[PATH_BYTES], base[NAME_BYTES];
    size_t bytes = strlen(name);
    bool is_packed = bytes > 3 && strcmp(name + bytes - 3, ".gz") == 0;
    if (name[0] == '.' || bytes >= sizeof base)
        return STATUS_OK;
    memcpy(base, name, bytes + 1);
    if (is_packed)
        base[bytes - 3] = 0;
    enum status status = path_format(path, "%s/%s", dir, name);
    struct static_file *file = status == STATUS_OK ? add(files, base) : NULL;
    if (!file)
        return error_set(err, STATUS_TOO_LARGE, "--web %s: more than %u files", dir, FILES_MAX);
    return file_read(path, is_packed ? &file->packed : &file->plain, err);
}

static enum status load_dir(struct static_files *files, const char *dir, struct error *err)
{
    DIR *open = opendir(dir);
    enum status status = STATUS_OK;
    if (!open)
        return error_set_errno(err, errno, "cannot read the dashboard in %s", dir);
    for (struct dirent *entry = readdir(open); entry && status == STATUS_OK; entry = readdir(open))
        if (entry->d_type == DT_REG || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN)
            status = load_file(files, dir, entry->d_name, err);
    closedir(open);
    for (uint32_t i = 0; i < files->count; i++)
        set_etag(&files->files[i]);
    if (status == STATUS_OK && !find(files, "index.html"))
        status = error_set(err, STATUS_NOT_FOUND, "--web %s has no index.html", dir);
    return status;
}

enum status static_files_load(const char *web_dir, struct static_files **ret, struct error *err)
{
    struct static_files *files = calloc(1, sizeof *files);
    enum status status = STATUS_OK;
    if (!files)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the dashboard's files");
    if (web_dir) {
        status = load_dir(files, web_dir, err);
    } else {
        struct static_file *page = add(files, "index.html");
        status = buffer_append_text(&page->plain, built_in_page);
        set_etag(page);
    }
    if (status) {
        static_files_free(files);
        return status;
    }
    *ret = files;
    return STATUS_OK;
}

void static_files_free(struct static_files *files)
{
    for (uint32_t i = 0; files && i < files->count; i++) {
        buffer_done(&files->files[i].plain);
        buffer_done(&files->files[i].packed);
    }
    free(files);
}

/* "/jobs", "/jobs/…", "/login": the dashboard shows these pages by itself. */
static bool is_page(const char *path)
{
    static const char *const pages[] = {"/jobs",       "/login",  "/setup",
                                        "/volunteers", "/events", "/settings"};
    if (strcmp(path, "/") == 0)
        return true;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        size_t bytes = strlen(pages[i]);
        if (strncmp(path, pages[i], bytes) == 0 && (path[bytes] == 0 || path[bytes] == '/'))
            return true;
    }
    return false;
}

/* Every browser of the last decades sends "gzip" without a weight; anything fancier gets it plain.
 */
static bool accepts_gzip(const struct request *request)
{
    const char *at = request_header(request, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    while (at && *at) {
        at += strspn(at, ", \t");
        size_t bytes = strcspn(at, ", \t");
        if (bytes == 4 && strncasecmp(at, "gzip", 4) == 0)
            return true;
        at += bytes;
    }
    return false;
}

bool static_files_respond(const struct static_files *files, struct request *request)
{
    bool is_read = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    const struct static_file *file =
        find(files, is_page(request->path) ? "index.html" : request->path + 1);
    if (!is_read || !file)
        return false;
    const char *known = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    bool packed = file->packed.bytes > 0 && accepts_gzip(request);
    const struct buffer *body = packed ? &file->packed : &file->plain;
    if (known && strstr(known, file->etag))
        respond_empty_cached(request, MHD_HTTP_NOT_MODIFIED);
    else
        respond_static(request, type_of(file->name), body->data, body->bytes);
    if (packed && request->status == MHD_HTTP_OK)
        respond_header(request, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    respond_header(request, MHD_HTTP_HEADER_VARY, "Accept-Encoding");
    respond_header(request, MHD_HTTP_HEADER_ETAG, "%s", file->etag);
    respond_header(request, MHD_HTTP_HEADER_CACHE_CONTROL, "%s",
                   file->is_immutable ? "public, max-age=31536000, immutable" : "no-cache");
    return true;
}
