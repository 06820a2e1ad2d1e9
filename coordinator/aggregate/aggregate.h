/* One job's parameters and how updates change them (docs: design "coordinator, one update"):
 * per arrival θ −= α·s·f·Δ, then the commit c = C(θ − w), w += c, version += 1. θ − w is the
 * downlink's error feedback. No momentum. Bit-identical for the same inputs: fixed order, fp32
 * products and sums without contraction, norms in double in index order.
 * No I/O, no clock; used by one thread at a time. */
#ifndef RAVEN_COORDINATOR_AGGREGATE_AGGREGATE_H
#define RAVEN_COORDINATOR_AGGREGATE_AGGREGATE_H

#include "common/base/buffer.h"
#include "common/base/status.h"
#include "common/codec/codec.h"

#include <stdint.h>

struct aggregate;

/* theta0 is copied to θ and w (version 0). tensor_counts[tensor_count]: elements per parameter
 * tensor in layout order, summing to n. */
enum status aggregate_create(const float *theta0, uint64_t n, const uint64_t *tensor_counts,
                             uint32_t tensor_count, struct aggregate **ret) MUST_CHECK;
/* From a snapshot. */
void aggregate_restore(struct aggregate *aggregate, const float *theta, const float *w,
                       uint64_t version);
void aggregate_free(struct aggregate *aggregate);

/* [n]; valid until the next aggregate_ call that changes the aggregate. */
const float *aggregate_theta(const struct aggregate *aggregate);
const float *aggregate_w(const struct aggregate *aggregate);
uint64_t aggregate_version(const struct aggregate *aggregate);
uint64_t aggregate_parameters(const struct aggregate *aggregate); /* n */
uint64_t aggregate_hash(const struct aggregate *aggregate);       /* hash(w) at this version */

/* Staleness weight: 1 for staleness ≤ active − 1, else sqrt(active / (1 + staleness)); active ≥ 1.
 */
float aggregate_staleness_weight(uint32_t staleness, uint32_t active);
/* True when an update this old is not applied: staleness > 4 × active. */
bool aggregate_is_stale(uint32_t staleness, uint32_t active);
/* Outer rate α for R active agents and density k/4096: min(1, 2/√R) up to 1/64, min(1, 1.4/√R) up
 * to 1/32, 1/√R above. fixed > 0 overrides the rule. Not annealed: what an agent sent it has
 * dropped from its own model, so an α below 1 throws progress away (measured: 2.59 against 2.79
 * bits per byte after 54,000 samples of the demo with α following the cosine). */
float aggregate_outer_rate(uint32_t active, uint32_t k, double fixed);

/* Computes one clip factor per tensor: min(1, median/norm), median over the last 32 accepted
 * updates' norms of that tensor (1 until 8 were accepted). STATUS_NOT_FINITE: the update moves a
 * parameter absurdly far; err says which tensor; nothing changed. payload: for these n parameters.
 * ret_factors[tensor_count]. */
enum status aggregate_examine(struct aggregate *aggregate, const struct codec_payload *payload,
                              float *ret_factors, struct error *err) MUST_CHECK;
/* θ −= weight · factors[tensor] · Δ; the payload's norms enter the clip history. On failure nothing
 * changed. */
enum status aggregate_apply(struct aggregate *aggregate, const struct codec_payload *payload,
                            float weight, const float *factors, struct error *err) MUST_CHECK;
/* Appends the delta's bytes to ret_delta, w += delta, version += 1; one pass over θ and w. */
enum status aggregate_commit(struct aggregate *aggregate, struct codec_format format,
                             struct buffer *ret_delta, uint64_t *ret_hash) MUST_CHECK;

/* The clip history as bytes for the snapshot. */
enum status aggregate_history_write(const struct aggregate *aggregate,
                                    struct buffer *ret) MUST_CHECK;
enum status aggregate_history_read(struct aggregate *aggregate, const uint8_t *data,
                                   size_t bytes) MUST_CHECK;

#endif
