/* reference_expected: the reference's results of one case: id, TTFT, TBT and E2E of each request.
 * The struct owns the rows of the whole file, and the caller takes each row once. reference.c calls
 * the functions on the main thread, and compares the rows itself. */
#ifndef TOOLS_SIMULATE_SPLITWISE_REFERENCE_EXPECTED_H
#define TOOLS_SIMULATE_SPLITWISE_REFERENCE_EXPECTED_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct expected_row {
    uint64_t id;
    double ttft_s;
    double tbt_s;
    double e2e_s;
    bool taken; /* reference_expected_take has returned the row. */
};

struct reference_expected {
    struct expected_row *rows; /* Sorted by id. */
    uint64_t count;
    uint64_t untaken; /* Rows that were not taken. */
};

/* Reads the CSV file; reference_expected_done frees the rows. Errors name the file, and the line if
 * a line is wrong. */
enum status reference_expected_read(struct reference_expected *out, const char *path,
                                    struct error *error);
void reference_expected_done(struct reference_expected *expected);

/* Takes the row of this id, which is valid until reference_expected_done. Returns NULL if there is
 * no such row, or if the row was taken before. */
struct expected_row *reference_expected_take(struct reference_expected *expected, uint64_t id);
/* Returns the number of rows that were not taken. */
static inline uint64_t reference_expected_untaken(const struct reference_expected *expected)
{
    return expected->untaken;
}

#endif
