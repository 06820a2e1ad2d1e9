/* The real agent program as a child, with an NVIDIA driver that hangs, crashes or is of no use: the
 * parent always gets an answer in time, and a sentence for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/gpu/gpu_watch.h"
#include "common/base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct gpu_check check = {RAVEN_AGENT_PROGRAM, 1000, false};

static size_t check_with(const char *behaviour, struct gpu_report ret[GPU_DEVICES_MAX],
                         char why[200])
{
    assert_int_equal(setenv("FAKE_CUDA", behaviour, 1), 0);
    return gpu_check_all(&check, -1, ret, why);
}

static void assert_nothing(const char *behaviour, const char *sentence)
{
    struct gpu_report reports[GPU_DEVICES_MAX];
    char why[200];
    assert_int_equal(check_with(behaviour, reports, why), 0);
    if (!strstr(why, sentence))
        fail_msg("%s: \"%s\" does not say \"%s\"", behaviour, why, sentence);
}

static void pain_I1_a_driver_that_hangs_is_given_up(void **state)
{
    (void)state;
    int64_t from_us = clock_monotonic_us();
    assert_nothing("hang", "did not answer within 1 s");
    int64_t took_us = clock_monotonic_us() - from_us;
    assert_true(took_us >= 1000000 && took_us < 5000000);
}

static void a_driver_that_crashes_takes_nobody_with_it(void **state)
{
    (void)state;
    assert_nothing("crash", "crashed (Segmentation fault)");
}

static void pain_I3_drivers_of_no_use_are_explained(void **state)
{
    (void)state;
    assert_nothing("mismatch", "reboot this PC");
    assert_nothing("stub", "install the NVIDIA driver");
    assert_nothing("none", "sees no NVIDIA card");
}

/* OpenCL is asked even so: what it says about itself is in the sentence. */
static void one_interface_that_hangs_does_not_hide_the_other(void **state)
{
    (void)state;
    assert_nothing("hang", "OpenCL");
}

static void pain_I5_cards_on_different_domains_are_two(void **state)
{
    (void)state;
    struct gpu_report reports[GPU_DEVICES_MAX];
    char why[200];
    assert_int_equal(check_with("two", reports, why), 2);
    assert_string_equal(reports[0].info.id, "cuda:0000:01:00.0");
    assert_string_equal(reports[1].info.id, "cuda:0001:01:00.0");
    assert_string_equal(reports[0].info.name, "Toy 0?\"<b>"); /* no control characters */
    assert_string_equal(reports[0].info.driver, "CUDA 12.4");
    assert_int_equal(reports[0].state, GPU_UNUSABLE);
    assert_non_null(strstr(reports[0].reason, "error 999"));
}

static void a_program_that_is_not_there_is_no_crash(void **state)
{
    (void)state;
    struct gpu_check wrong = {"/nonexistent/raven-agent", 1000, false};
    struct gpu_report reports[GPU_DEVICES_MAX];
    char why[200];
    assert_int_equal(gpu_check_all(&wrong, -1, reports, why), 0);
    assert_true(strlen(why) > 10);
    wrong.program = "/bin/echo"; /* says something else */
    assert_int_equal(gpu_check_all(&wrong, -1, reports, why), 0);
}

/* --- the watch ------------------------------------------------------------------------------- */

struct told {
    pthread_mutex_t lock;
    int times;
    size_t count;
};

static void note(void *user, const struct gpu_report *reports, size_t count, const char *why)
{
    struct told *told = user;
    (void)reports, (void)why;
    pthread_mutex_lock(&told->lock);
    told->times++;
    told->count = count;
    pthread_mutex_unlock(&told->lock);
}

static void the_watch_tells_and_stops_at_once(void **state)
{
    (void)state;
    struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct gpu_watch *watch;
    struct error err;
    assert_int_equal(setenv("FAKE_CUDA", "two", 1), 0);
    assert_int_equal(gpu_watch_start(&check, note, &told, &watch, &err), STATUS_OK);
    for (int i = 0, times = 0; i < 1000 && times == 0; i++) {
        (void)usleep(10000);
        pthread_mutex_lock(&told.lock);
        times = told.times;
        pthread_mutex_unlock(&told.lock);
    }
    gpu_watch_stop(watch);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.count, 2);

    struct gpu_check patient = {RAVEN_AGENT_PROGRAM, 60000, false};
    assert_int_equal(setenv("FAKE_CUDA", "hang", 1), 0);
    int64_t from_us = clock_monotonic_us();
    assert_int_equal(gpu_watch_start(&patient, note, &told, &watch, &err), STATUS_OK);
    (void)usleep(200000);
    gpu_watch_stop(watch);
    assert_true(clock_monotonic_us() - from_us < 5000000);
    assert_int_equal(told.times, 1);
    gpu_watch_stop(NULL);
}

int main(void)
{
    /* The fake driver first; and no OpenCL, which would offer this computer's processor. */
    (void)setenv("LD_LIBRARY_PATH", RAVEN_FAKE_LIBRARIES, 1);
    (void)setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    (void)setenv("ASAN_OPTIONS", "handle_segv=0:detect_leaks=0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pain_I1_a_driver_that_hangs_is_given_up),
        cmocka_unit_test(a_driver_that_crashes_takes_nobody_with_it),
        cmocka_unit_test(pain_I3_drivers_of_no_use_are_explained),
        cmocka_unit_test(one_interface_that_hangs_does_not_hide_the_other),
        cmocka_unit_test(pain_I5_cards_on_different_domains_are_two),
        cmocka_unit_test(a_program_that_is_not_there_is_no_crash),
        cmocka_unit_test(the_watch_tells_and_stops_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
