/* What only several settings together can violate: head counts, image sizes, the data's kind, and
 * how much memory one step would take on a volunteer's PC. Plain functions, any thread. Surprising:
 * memory is an estimate here (the exact plan is the engine's); it only stops absurd requests. */
#include "common/graph/job_spec_fields.h"

#include "common/base/bytes.h"

#define ACTIVATIONS_MAX (1ull << 31) /* floats of one step: 8 GiB */

static void check_gpt(const struct model_spec *model, struct spec_complaints *list)
{
    if (model->heads && model->width % model->heads != 0)
        spec_complain(list, "/model/heads", "divides",
                      "heads is %u, which does not divide width %u; use a divisor of the width",
                      model->heads, model->width);
}

static void check_cnn(const struct model_spec *model, struct spec_complaints *list)
{
    uint32_t side =
        model->image_height < model->image_width ? model->image_height : model->image_width;
    if (side && side >> model->channels_count == 0)
        spec_complain(list, "/model/channels", "max",
                      "channels has %u entries, and each halves the image of %u × %u; use fewer "
                      "entries or larger images",
                      model->channels_count, model->image_height, model->image_width);
}

static enum data_kind kind_for(enum model_preset preset)
{
    switch (preset) {
    case MODEL_MLP:
    case MODEL_CNN:
        return DATA_IMAGES;
    case MODEL_GPT:
        return DATA_TEXT;
    case MODEL_SYNTHETIC:
        return DATA_SYNTHETIC;
    }
    return DATA_IMAGES;
}

static void check_kind(const struct job_spec *spec, struct spec_complaints *list)
{
    enum data_kind wanted = kind_for(spec->model.preset);
    if (spec->data.kind != wanted)
        spec_complain(
            list, "/data/kind", "choice",
            "kind is %s, but preset %s learns from %s data; use kind %s or another preset",
            spec_data_kinds[spec->data.kind].tag, spec_models[spec->model.preset].tag,
            spec_data_kinds[wanted].tag, spec_data_kinds[wanted].tag);
}

/* About how many floats one sample's activations and their gradients take. */
static uint64_t floats_per_sample(const struct model_spec *model)
{
    uint64_t floats = 0;
    switch (model->preset) {
    case MODEL_MLP:
        floats = model->inputs + model->classes;
        for (uint32_t i = 0; i < model->hidden_count; i++)
            floats += 2ull * model->hidden[i];
        return floats;
    case MODEL_CNN:
        for (uint32_t i = 0; i < model->channels_count; i++)
            floats +=
                3ull * model->channels[i] * (model->image_height >> i) * (model->image_width >> i);
        return floats;
    case MODEL_GPT: /* a block holds two norms, q k v, attention, two adds, 4 × width twice */
        return model->context *
               (model->layers * 17ull * model->width + 4ull * model->width + 2 * model->vocabulary);
    case MODEL_SYNTHETIC: /* works on the parameters alone */
        return 0;
    }
    return floats;
}

static void check_memory(const struct job_spec *spec, struct spec_complaints *list)
{
    uint64_t floats = floats_per_sample(&spec->model);
    if (floats == 0 || spec->training.batch_size <= ACTIVATIONS_MAX / floats)
        return;
    uint64_t fits = ACTIVATIONS_MAX / floats;
    if (fits > 0)
        spec_complain(list, "/training/batch_size", "max",
                      "batch_size is %u, more memory than volunteers have with this model; use at "
                      "most %llu",
                      spec->training.batch_size, (unsigned long long)fits);
    else
        spec_complain(list, "/model", "max",
                      "one sample of this model takes %llu MiB of memory, too much for "
                      "volunteers; use a smaller model",
                      (unsigned long long)(floats >> 18));
}

void spec_check_together(const struct job_spec *spec, struct spec_complaints *list)
{
    check_kind(spec, list);
    if (spec->model.preset == MODEL_GPT)
        check_gpt(&spec->model, list);
    if (spec->model.preset == MODEL_CNN)
        check_cnn(&spec->model, list);
    if (list->count == 0)
        check_memory(spec, list);
}
