/* Images and labels in IDX files. Training thread. Surprising: brightness is normalised by mean and
 * deviation of all training pixels, computed here from a histogram in whole numbers: every agent
 * gets the same 256-entry table. */
#include "agent/engine/data.h"

#include <math.h>

static enum status open_pair(struct data_images *pair, const char *images, const char *labels,
                             const struct data *data, uint32_t classes, struct error *err)
{
    enum status status = idx_open(images, &pair->images, err);
    if (!status)
        status = idx_open(labels, &pair->labels, err);
    if (status)
        return status;
    const struct idx *pixels = &pair->images;
    if (pixels->rank < 2 || pixels->dims[0] == 0 || pixels->count / pixels->dims[0] != data->pixels)
        return error_set(
            err, STATUS_INVALID,
            "the images have %llu pixels each (rank %u), but the model takes %llu; "
            "change the model's input size or use other images",
            (unsigned long long)(pixels->dims[0] ? pixels->count / pixels->dims[0] : 0),
            pixels->rank, (unsigned long long)data->pixels);
    if (pair->labels.rank != 1 || pair->labels.dims[0] != pixels->dims[0])
        return error_set(err, STATUS_INVALID,
                         "there are %llu images but %llu labels (rank %u); use files that belong "
                         "together",
                         (unsigned long long)pixels->dims[0],
                         (unsigned long long)pair->labels.dims[0], pair->labels.rank);
    for (uint64_t i = 0; i < pair->labels.count; i++) {
        if (pair->labels.data[i] >= classes)
            return error_set(err, STATUS_INVALID,
                             "label %llu is %u, but the model has %u classes; use classes %u or "
                             "more",
                             (unsigned long long)i, pair->labels.data[i], classes,
                             pair->labels.data[i] + 1u);
    }
    return STATUS_OK;
}

static void make_brightness(struct data *data)
{
    uint64_t histogram[256] = {0};
    for (uint64_t i = 0; i < data->train.images.count; i++)
        histogram[data->train.images.data[i]]++;
    double count = (double)data->train.images.count, mean = 0, variance = 0;
    for (int i = 0; i < 256; i++)
        mean += i * ((double)histogram[i] / count);
    for (int i = 0; i < 256; i++)
        variance += (i - mean) * (i - mean) * ((double)histogram[i] / count);
    double deviation = variance > 1 ? sqrt(variance) : 1; /* all pixels alike: do not blow up */
    for (int i = 0; i < 256; i++)
        data->brightness[i] = (float)((i - mean) / deviation);
}

enum status data_images_open(struct data *data, const struct job_spec *spec,
                             const struct trainer_data_paths *paths, struct error *err)
{
    const struct model_spec *model = &spec->model;
    const char *const *path = paths->paths;
    data->pixels = model->preset == MODEL_CNN ? (uint64_t)model->image_height * model->image_width
                                              : model->inputs;
    enum status status = open_pair(&data->train, path[0], path[1], data, model->classes, err);
    if (!status)
        status = open_pair(&data->held_out, path[2], path[3], data, model->classes, err);
    if (!status)
        make_brightness(data);
    return status;
}

void data_images_close(struct data *data)
{
    struct data_images *pairs[] = {&data->train, &data->held_out};
    for (int i = 0; i < 2; i++) {
        if (pairs[i]->images.map)
            idx_close(&pairs[i]->images);
        if (pairs[i]->labels.map)
            idx_close(&pairs[i]->labels);
    }
}

void data_images_sample(const struct data *data, const struct data_images *from, uint64_t index,
                        float *image, int32_t *label)
{
    const uint8_t *pixels = from->images.data + index * data->pixels;
    for (uint64_t i = 0; i < data->pixels; i++)
        image[i] = data->brightness[pixels[i]];
    *label = from->labels.data[index];
}
