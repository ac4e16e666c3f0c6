/* admin_page: reads figures from a page, the text of GET /metrics (Prometheus' exposition format).
 * `cleave top` (screen.c) calls it on the main thread. It allocates no memory, keeps no state and
 * sends no requests. A page may be from another release: a family that is missing counts as 0, and
 * lines that are not samples are skipped. Samples must have no timestamp; cleave writes none. */
#ifndef TOOLS_ADMIN_PAGE_H
#define TOOLS_ADMIN_PAGE_H

#include <stdint.h>

#define PAGE_BOUNDS_MAX 64 /* Further bounds are left out. */

/* A histogram: below[i] counts values up to bounds[i]. */
struct page_histogram {
    /* Number of bounds, which ascend. Values above the last bound count only in `total` and `sum`.
     */
    uint32_t bound_count;
    double bounds[PAGE_BOUNDS_MAX];
    double below[PAGE_BOUNDS_MAX];
    double total;
    double sum;
};

/* Returns the sum of all samples of a family, with any labels; NaN and infinity are left out. */
double page_sum(const char *page, const char *name);

/* Reads a histogram: buckets, total and sum. If the family has several series (sets of labels),
 * they are added to one histogram; their bounds must be equal. */
void page_histogram_read(const char *page, const char *name, struct page_histogram *out);
/* Subtracts an earlier reading of the histogram, so that *now has only what was counted since. If
 * the total is smaller than before, because the counters have begun again, or if the bounds differ
 * in number, *now is not changed. */
void page_histogram_since(struct page_histogram *now, const struct page_histogram *before);

/* Returns the value below which a share q (0 to 1) of the values lies, interpolated between bounds
 * and at most the last bound; -1 = no values, or no bounds. */
double page_quantile(const struct page_histogram *h, double q);
/* Returns the share of the values up to `limit`, interpolated between bounds; values above the last
 * bound count as above `limit`. -1 = no values. */
double page_share(const struct page_histogram *h, double limit);

#endif
