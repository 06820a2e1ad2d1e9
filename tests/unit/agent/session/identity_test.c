/* The key file: private, survives, refused when others can read it or when it is damaged; and the
 * hello's signature verifies. */
#include "agent/session/identity.h"

#include "common/base/file.h"
#include "common/wire/wire.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_key_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_identity_XXXXXX", path[PATH_BYTES];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(path_format(path, "%s/agent.key", dir), STATUS_OK);
    struct identity made, loaded;
    struct error err = {0};
    assert_int_equal(identity_load(dir, &loaded, &err), STATUS_NOT_FOUND);
    assert_int_equal(identity_create(dir, &made, &err), STATUS_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(identity_load(dir, &loaded, &err), STATUS_OK);
    assert_memory_equal(&made, &loaded, sizeof made);

    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(identity_load(dir, &loaded, &err), STATUS_DENIED);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 63), 0);
    assert_int_equal(identity_load(dir, &loaded, &err), STATUS_CORRUPT);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(identity_load(dir, &loaded, &err), STATUS_CORRUPT);
    assert_int_equal(truncate(path, 100000), 0);
    assert_int_not_equal(identity_load(dir, &loaded, &err), STATUS_OK);
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static void test_signature(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_identity_XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct identity identity;
    struct error err = {0};
    assert_int_equal(identity_create(dir, &identity, &err), STATUS_OK);
    uint8_t nonce[32], signature[64], text[20 + 64];
    memset(nonce, 0xA5, sizeof nonce);
    identity_sign_hello(&identity, nonce, signature);
    memcpy(text, "raven-agent.v1 hello", 20);
    memcpy(text + 20, nonce, 32);
    memcpy(text + 52, identity.public_key, 32);
    assert_int_equal(crypto_sign_verify_detached(signature, text, sizeof text, identity.public_key),
                     0);
    text[21] ^= 1;
    assert_int_not_equal(
        crypto_sign_verify_detached(signature, text, sizeof text, identity.public_key), 0);
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_file),
        cmocka_unit_test(test_signature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
