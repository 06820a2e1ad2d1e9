/* The update code on a device: the bytes of codec_encode, the floats of codec_add, bit for bit.
 * Value coders 1 … 4 (fp32 is a copy: no work for a kernel). Same thread as the device's other
 * calls.
 *
 * Encoding has two halves, so that the next lease's training can be put into the compute stream in
 * between: begin puts the kernels there and the copies to pinned host memory into the copy stream;
 * finish waits for the copies and puts the payload together. One encoding at a time. */
#ifndef RAVEN_AGENT_GPU_GPU_UPDATE_H
#define RAVEN_AGENT_GPU_GPU_UPDATE_H

#include "agent/gpu/gpu.h"
#include "common/codec/codec.h"

struct gpu_update;

/* As struct codec_source, of device vectors [n]; absent ones NULL. */
struct gpu_source {
    const struct gpu_memory *residual, *plus, *minus, *add_to;
    float decay;
};

/* Scratch and host buffers for updates of n parameters in this format. STATUS_INVALID: no such
 * format, or fp32. */
enum status gpu_update_create(struct gpu *gpu, uint64_t n, struct codec_format format,
                              struct gpu_update **ret, struct error *err) MUST_CHECK;
void gpu_update_free(struct gpu_update *update); /* NULL is fine */

enum status gpu_update_begin(struct gpu_update *update, const struct gpu_source *source,
                             struct error *err) MUST_CHECK;
/* Appends the payload, or on STATUS_NOT_FINITE names the first entry that is not in err and in
 * *ret_position (may be NULL); residual and add_to are worthless then. */
enum status gpu_update_finish(struct gpu_update *update, struct buffer *ret, uint64_t *ret_position,
                              struct error *err) MUST_CHECK;

/* target[i] += factor · decoded[i]; put into the compute stream, done when this returns. */
enum status gpu_update_add(struct gpu *gpu, const struct codec_payload *payload, float factor,
                           const struct gpu_memory *target, struct error *err) MUST_CHECK;

#endif
