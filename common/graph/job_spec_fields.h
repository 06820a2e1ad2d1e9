/* The settings of a job as tables: one row per setting drives reading, checking, defaults and
 * writing, so that the four cannot disagree. Private to common/graph. */
#ifndef RAVEN_COMMON_GRAPH_JOB_SPEC_FIELDS_H
#define RAVEN_COMMON_GRAPH_JOB_SPEC_FIELDS_H

#include "common/graph/job_spec.h"

#include <stddef.h>

enum field_type {
    FIELD_TYPE_U32,
    FIELD_TYPE_U64,
    FIELD_TYPE_REAL,
    FIELD_TYPE_BOOL,
    FIELD_TYPE_WORD,     /* uint32_t: 1 for the first of words, and so on */
    FIELD_TYPE_LIST,     /* uint32_t[MODEL_HIDDEN_MAX], its length at count_offset */
    FIELD_TYPE_ARTIFACT, /* char[ID_BYTES] */
};

/* A setting that limits another one of its section, such as k_max does k_per_chunk. */
enum field_limit { LIMIT_NONE, LIMIT_LOW, LIMIT_HIGH };

struct spec_field {
    const char *name;
    enum field_type type;
    size_t offset, count_offset; /* inside struct job_spec */
    double min, max;             /* both allowed; lists: of every entry */
    bool required;
    double initial;           /* unless required */
    const char *const *words; /* FIELD_TYPE_WORD: as many as max says */
    /* FIELD_TYPE_U32: the default makes way for the limited setting, which stands earlier in the
     * table; a given value that does not enclose it is complained about. */
    enum field_limit limit;
    const struct spec_field *limited;
};

/* One JSON object of the settings: "/training" and its fields. */
struct spec_section {
    const char *name;
    const char *tag; /* value of "preset" or "kind"; NULL for the plain sections */
    const struct spec_field *fields;
    size_t field_count;
};

#define SPEC_MODELS 4     /* indexed by enum model_preset */
#define SPEC_DATA_KINDS 3 /* indexed by enum data_kind */
#define SPEC_SECTIONS 5

extern const struct spec_section spec_models[SPEC_MODELS];
extern const struct spec_section spec_data_kinds[SPEC_DATA_KINDS];
extern const struct spec_section spec_sections[SPEC_SECTIONS];

/* Reads section from object (NULL: absent) into spec; complains about every field that is missing,
 * of the wrong type or out of range, and about unknown ones. tag_name: a further allowed field. */
void spec_section_read(const struct spec_section *section, const json_t *object,
                       const char *tag_name, struct job_spec *spec, struct spec_complaints *list);
/* The section as a new JSON object with tag_name set to the section's tag; NULL: out of memory. */
json_t *spec_section_write(const struct spec_section *section, const char *tag_name,
                           const struct job_spec *spec);

/* Complains about fields of object (at pointer parent, "" is the top) not in the space-separated
 * known list. */
void spec_refuse_unknown(const char *parent, const json_t *object, const char *known,
                         struct spec_complaints *list);

#define SPEC_VALUE_BYTES 64
/* A JSON value as short text for a complaint, cut with "…". */
const char *spec_value_text(const json_t *value, char ret[SPEC_VALUE_BYTES]);

/* What only several settings together can violate. Call when there are no other complaints. */
void spec_check_together(const struct job_spec *spec, struct spec_complaints *list);

#endif
