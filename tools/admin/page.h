/* admin_page: reads figures from a page, the text of GET /metrics (Prometheus' exposition format).
 * `cleave top` (screen.c) calls it on the main thread. It allocates no memory, keeps no state and
 * sends no requests. A page may be from another release: a family that is missing counts as 0, and
 * lines of another form are skipped. */
#ifndef TOOLS_ADMIN_PAGE_H
#define TOOLS_ADMIN_PAGE_H

#include <stdint.h>

#define PAGE_BOUNDS_MAX 64

/* A histogram: below[i] counts values up to bounds[i]. */
struct page_histogram {
    /* Number of bounds, which ascend. Values above the last bound count in `total` only. */
    uint32_t count;
    double bounds[PAGE_BOUNDS_MAX];
    double below[PAGE_BOUNDS_MAX];
    double total;
    double sum;
};

/* Returns the sum of all samples of a family, with any labels. */
double page_sum(const char *page, const char *name);

/* Reads a histogram, with its sum and total. Adds its series, which must have equal bounds. */
void page_histogram_read(const char *page, const char *name, struct page_histogram *out);
/* Subtracts an earlier reading of the histogram, so that *now has only what was counted since. If
 * the counters have begun again in between, *now is not changed. */
void page_histogram_since(struct page_histogram *now, const struct page_histogram *before);

/* Returns the value below which a share q (0 to 1) of the values lies, interpolated between bounds;
 * -1 = no values. */
double page_quantile(const struct page_histogram *h, double q);
/* Returns the share of the values up to `limit`, interpolated between bounds; -1 = no values. */
double page_share(const struct page_histogram *h, double limit);

#endif
