/* A finished graph: its initial parameters, its layout hash, its parameter list. Plain functions,
 * any thread. Surprising: initial values use only exact integer sums and single correctly rounded
 * operations, so every machine makes the same bits. */
#include "common/graph/graph.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"

#include <stdlib.h>

void graph_free(struct graph *graph)
{
    if (!graph)
        return;
    free(graph->tensors);
    free(graph->nodes);
    free(graph->parameters);
    free(graph);
}

void graph_initialise(const struct graph *graph, uint64_t seed, float *theta)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < graph->parameter_tensors; i++) {
        const struct graph_tensor *tensor = graph_parameter(graph, i);
        float *values = theta + tensor->offset;
        for (uint64_t j = 0; j < tensor->count; j++) {
            if (tensor->init == INIT_NORMAL)
                values[j] = (float)(rng_normal(&rng) * (double)tensor->init_deviation);
            else
                values[j] = tensor->init == INIT_ONE ? 1.0f : 0.0f;
        }
    }
}

uint64_t graph_layout_hash(const struct graph *graph)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < graph->parameter_tensors; i++) {
        const struct graph_tensor *tensor = graph_parameter(graph, i);
        uint8_t shape[8 + 8 * GRAPH_RANK_MAX] = {0};
        store_u64(shape, tensor->rank);
        for (uint32_t j = 0; j < tensor->rank; j++)
            store_u64(shape + 8 + 8 * j, tensor->dims[j]);
        hash = checksum_xxh3_seeded(tensor->name, strlen(tensor->name) + 1, hash);
        hash = checksum_xxh3_seeded(shape, sizeof shape, hash);
    }
    return hash;
}

uint32_t graph_parameter_tensors(const struct graph *graph)
{
    return graph->parameter_tensors;
}

const struct graph_tensor *graph_parameter(const struct graph *graph, uint32_t i)
{
    return &graph->tensors[graph->parameters[i]];
}
