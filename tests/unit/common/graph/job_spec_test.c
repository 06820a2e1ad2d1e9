/* What a job may say: defaults, round trip, every complaint at once with its pointer, the
 * learning-rate curve. */
#include "common/graph/job_spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define GPT_MODEL                                                                                  \
    "{\"preset\":\"gpt\",\"layers\":2,\"width\":64,\"heads\":4,\"context\":64,\"vocabulary\":256}"
#define TEXT_DATA "{\"kind\":\"text\",\"train\":\"art_01JD0000000000000000000001\"}"
#define TRAINING "{\"batch_size\":8,\"total_samples\":72000}"
#define JOB(model, data, training)                                                                 \
    "{\"name\":\"n\",\"model\":" model ",\"data\":" data ",\"training\":" training "}"

static struct spec_complaints complaints;

static enum status parse(const char *text, struct job_spec *ret)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    memset(&complaints, 0, sizeof complaints);
    enum status status = job_spec_parse(json, ret, &complaints);
    json_decref(json);
    return status;
}

static const struct spec_complaint *complaint_at(const char *pointer)
{
    for (uint32_t i = 0; i < complaints.count; i++)
        if (strcmp(complaints.items[i].pointer, pointer) == 0)
            return &complaints.items[i];
    fail_msg("no complaint about %s", pointer);
    return NULL;
}

static void refuse(const char *text, const char *pointer)
{
    struct job_spec spec;
    assert_int_equal(parse(text, &spec), STATUS_INVALID);
    assert_true(strlen(complaint_at(pointer)->detail) > 10);
}

static void test_defaults_and_round_trip(void **state)
{
    struct job_spec spec, again;
    struct error err = {0};
    (void)state;
    if (parse(JOB(GPT_MODEL, TEXT_DATA, TRAINING), &spec))
        fail_msg("%s %s", complaints.items[0].pointer, complaints.items[0].detail);
    assert_int_equal(spec.training.steps_per_lease, 30);
    assert_int_equal(spec.update.k_per_chunk, 64);
    assert_true(spec.update.keep_unsent);
    assert_float_equal(spec.training.adam_beta2, 0.95, 0);
    json_t *json = job_spec_to_json(&spec);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_int_equal(job_spec_parse_text(text, strlen(text), &again, &err), STATUS_OK);
    json_t *json_again = job_spec_to_json(&again);
    assert_true(json_equal(json, json_again));
    free(text);
    json_decref(json);
    json_decref(json_again);
}

static void test_every_complaint_at_once(void **state)
{
    struct job_spec spec;
    (void)state;
    const char *text = "{\"name\":\"\",\"model\":{\"preset\":\"gpt\",\"layers\":0,\"width\":-3,"
                       "\"heads\":4,\"context\":64,\"vocabulary\":256,\"colour\":1},"
                       "\"training\":{\"batch_size\":\"8\",\"total_samples\":0}}";
    assert_int_equal(parse(text, &spec), STATUS_INVALID);
    complaint_at("/name");
    complaint_at("/model/layers");
    assert_non_null(strstr(complaint_at("/model/width")->detail, "-3"));
    assert_string_equal(complaint_at("/model/colour")->code, "unknown");
    assert_string_equal(complaint_at("/training/batch_size")->code, "type");
    complaint_at("/training/total_samples");
    complaint_at("/data");
}

static void test_wrong_models(void **state)
{
    (void)state;
    refuse(JOB("{\"preset\":\"transformer9000\"}", TEXT_DATA, TRAINING), "/model/preset");
    assert_non_null(strstr(complaint_at("/model/preset")->detail, "gpt"));
    refuse(JOB("{}", TEXT_DATA, TRAINING), "/model/preset");
    refuse(JOB("[]", TEXT_DATA, TRAINING), "/model");
    refuse(JOB("{\"preset\":\"gpt\",\"layers\":2,\"width\":66,\"heads\":4,\"context\":64,"
               "\"vocabulary\":256}",
               TEXT_DATA, TRAINING),
           "/model/heads");
    refuse(JOB("{\"preset\":\"mlp\",\"inputs\":4,\"hidden\":[1,2,3,4,5,6,7,8,9],\"classes\":2}",
               TEXT_DATA, TRAINING),
           "/model/hidden");
}

#define UPDATE_JOB(update)                                                                         \
    "{\"name\":\"n\",\"model\":" GPT_MODEL ",\"data\":" TEXT_DATA ",\"training\":" TRAINING        \
    ",\"update\":" update "}"

static void test_words_for_the_values(void **state)
{
    struct job_spec spec;
    (void)state;
    assert_int_equal(parse(UPDATE_JOB("{}"), &spec), STATUS_OK);
    assert_int_equal(spec.update.values, 1);
    assert_int_equal(
        parse(UPDATE_JOB("{\"values\":\"eight_bits\",\"downlink_values\":\"fp32\"}"), &spec),
        STATUS_OK);
    assert_int_equal(spec.update.values, 4);
    assert_int_equal(spec.update.downlink_values, 5);
    json_t *json = job_spec_to_json(&spec), *update = json_object_get(json, "update");
    assert_string_equal(json_string_value(json_object_get(update, "values")), "eight_bits");
    assert_string_equal(json_string_value(json_object_get(update, "downlink_values")), "fp32");
    json_decref(json);
    refuse(UPDATE_JOB("{\"values\":\"2bit\"}"), "/update/values");
    assert_string_equal(complaint_at("/update/values")->code, "enum");
    assert_non_null(
        strstr(complaint_at("/update/values")->detail, "2bit\"; use \"sign\" or \"two_bits\""));
    refuse(UPDATE_JOB("{\"downlink_values\":1}"), "/update/downlink_values");
    assert_string_equal(complaint_at("/update/downlink_values")->code, "type");
}

static void test_the_limits_enclose_the_start_values(void **state)
{
    struct job_spec spec;
    (void)state;
    assert_int_equal(parse(UPDATE_JOB("{}"), &spec), STATUS_OK);
    assert_true(spec.update.adaptive);
    assert_int_equal(spec.update.k_min, 16);
    assert_int_equal(spec.update.k_max, 256);
    assert_int_equal(spec.training.steps_min, 8);
    assert_int_equal(spec.training.steps_max, 256);
    assert_int_equal(parse(UPDATE_JOB("{\"k_per_chunk\":400,\"adaptive\":false}"), &spec),
                     STATUS_OK);
    assert_false(spec.update.adaptive);
    assert_int_equal(spec.update.k_min, 16);
    assert_int_equal(spec.update.k_max, 400);
    assert_int_equal(parse(UPDATE_JOB("{\"k_per_chunk\":3}"), &spec), STATUS_OK);
    assert_int_equal(spec.update.k_min, 3);
    refuse(UPDATE_JOB("{\"k_max\":32}"), "/update/k_max");
    assert_non_null(strstr(complaint_at("/update/k_max")->detail,
                           "k_max is 32, but k_per_chunk is 64; use 64 or more here"));
    refuse(UPDATE_JOB("{\"k_per_chunk\":64,\"k_min\":65}"), "/update/k_min");
    refuse(UPDATE_JOB("{\"k_max\":513}"), "/update/k_max");
    refuse(UPDATE_JOB("{\"k_min\":0}"), "/update/k_min");
    refuse(UPDATE_JOB("{\"adaptive\":1}"), "/update/adaptive");
    refuse(UPDATE_JOB("{\"k_per_chunk\":0,\"k_max\":1}"), "/update/k_per_chunk");
    assert_int_equal(complaints.count, 1); /* a wrong start value is not compared */
}

static void test_the_steps_have_limits_too(void **state)
{
    struct job_spec spec;
    (void)state;
    assert_int_equal(parse(JOB(GPT_MODEL, TEXT_DATA,
                               "{\"batch_size\":8,\"total_samples\":1,\"steps_per_lease\":4}"),
                           &spec),
                     STATUS_OK);
    assert_int_equal(spec.training.steps_min, 4);
    assert_int_equal(parse(JOB(GPT_MODEL, TEXT_DATA,
                               "{\"batch_size\":8,\"total_samples\":1,\"steps_per_lease\":900}"),
                           &spec),
                     STATUS_OK);
    assert_int_equal(spec.training.steps_max, 900);
    refuse(JOB(GPT_MODEL, TEXT_DATA,
               "{\"batch_size\":8,\"total_samples\":1,\"steps_min\":31,\"steps_max\":29}"),
           "/training/steps_min");
    assert_non_null(strstr(complaint_at("/training/steps_max")->detail, "steps_per_lease is 30"));
}

#define SYNTHETIC_MODEL "{\"preset\":\"synthetic\",\"parameters\":30800000,\"step_ms\":12.5}"
#define SYNTHETIC_DATA "{\"kind\":\"synthetic\"}"

static void test_synthetic_jobs(void **state)
{
    struct job_spec spec, again;
    struct error err = {0};
    (void)state;
    if (parse(JOB(SYNTHETIC_MODEL, SYNTHETIC_DATA, TRAINING), &spec))
        fail_msg("%s %s", complaints.items[0].pointer, complaints.items[0].detail);
    assert_int_equal(spec.model.preset, MODEL_SYNTHETIC);
    assert_int_equal(spec.data.kind, DATA_SYNTHETIC);
    assert_int_equal(spec.model.parameters, 30800000);
    assert_float_equal(spec.model.step_ms, 12.5, 0);
    json_t *json = job_spec_to_json(&spec);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    assert_int_equal(job_spec_parse_text(text, strlen(text), &again, &err), STATUS_OK);
    assert_memory_equal(&spec, &again, sizeof spec);
    free(text);
    json_decref(json);

    refuse(JOB(SYNTHETIC_MODEL, TEXT_DATA, TRAINING), "/data/kind");
    assert_non_null(strstr(complaint_at("/data/kind")->detail, "use kind synthetic"));
    refuse(JOB(GPT_MODEL, SYNTHETIC_DATA, TRAINING), "/data/kind");
    assert_non_null(strstr(complaint_at("/data/kind")->detail, "use kind text"));
    refuse(JOB("{\"preset\":\"synthetic\",\"parameters\":0,\"step_ms\":60001}", SYNTHETIC_DATA,
               TRAINING),
           "/model/parameters");
    complaint_at("/model/step_ms");
    refuse(JOB("{\"preset\":\"synthetic\",\"parameters\":2147483649,\"step_ms\":1}", SYNTHETIC_DATA,
               TRAINING),
           "/model/parameters");
    refuse(JOB("{\"preset\":\"synthetic\"}", SYNTHETIC_DATA, TRAINING), "/model/step_ms");
    refuse(JOB(SYNTHETIC_MODEL,
               "{\"kind\":\"synthetic\",\"train\":\"art_01JD0000000000000000000001\"}", TRAINING),
           "/data/train");
}

static void test_wrong_data(void **state)
{
    (void)state;
    refuse(JOB(GPT_MODEL, "{\"kind\":\"text\",\"train\":\"../../etc/passwd\"}", TRAINING),
           "/data/train");
    refuse(JOB(GPT_MODEL, "{\"kind\":\"sound\"}", TRAINING), "/data/kind");
    refuse(JOB("{\"preset\":\"mlp\",\"inputs\":784,\"hidden\":[16],\"classes\":10}", TEXT_DATA,
               TRAINING),
           "/data/kind");
}

static void test_text_that_is_no_job(void **state)
{
    struct job_spec spec;
    struct error err = {0};
    const char *const texts[] = {"", "{", "[]", "null", "\"job\"", "{\"name\":\"n\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        err.text[0] = 0;
        assert_int_not_equal(job_spec_parse_text(texts[i], strlen(texts[i]), &spec, &err),
                             STATUS_OK);
        assert_true(err.text[0] != 0);
    }
}

static void test_learning_rate_curve(void **state)
{
    struct job_spec spec;
    (void)state;
    assert_int_equal(parse(JOB(GPT_MODEL, TEXT_DATA,
                               "{\"batch_size\":8,\"total_samples\":100000,"
                               "\"learning_rate\":0.01,\"warmup_samples\":1000,"
                               "\"final_learning_rate_ratio\":0.1}"),
                           &spec),
                     STATUS_OK);
    assert_true(job_spec_learning_rate(&spec, 0) > 0);
    assert_true(job_spec_learning_rate(&spec, 0) < 0.001);
    assert_float_equal(job_spec_learning_rate(&spec, 500), 0.0051, 0.0002);
    assert_float_equal(job_spec_learning_rate(&spec, 1000), 0.01, 0.0001);
    assert_float_equal(job_spec_learning_rate(&spec, 50000), 0.0055, 0.00001);
    assert_float_equal(job_spec_learning_rate(&spec, 100000), 0.001, 1e-9);
    assert_float_equal(job_spec_learning_rate(&spec, 900000), 0.001, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_and_round_trip),
        cmocka_unit_test(test_every_complaint_at_once),
        cmocka_unit_test(test_wrong_models),
        cmocka_unit_test(test_words_for_the_values),
        cmocka_unit_test(test_the_limits_enclose_the_start_values),
        cmocka_unit_test(test_the_steps_have_limits_too),
        cmocka_unit_test(test_synthetic_jobs),
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_text_that_is_no_job),
        cmocka_unit_test(test_learning_rate_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
