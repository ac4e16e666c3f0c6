/* admin_page: reads figures from a *page*, the text of GET /metrics in Prometheus' exposition
 * format. In this format, a *family* is a metric, and a *sample* is one line with a value of the
 * family. `cleave top` calls the functions on the main thread. The functions keep no state and send
 * no requests. A missing family counts as 0. Samples must have no timestamps. */
#ifndef TOOLS_ADMIN_PAGE_H
#define TOOLS_ADMIN_PAGE_H

#include <stdint.h>

#define PAGE_BOUNDS_MAX 64 /* Further bounds of a histogram are left out. */

struct page_histogram {
    uint32_t bound_count;
    double bounds[PAGE_BOUNDS_MAX]; /* In ascending order. */
    double up_to[PAGE_BOUNDS_MAX];  /* up_to[i]: number of values up to bounds[i]. */
    double total;                   /* Number of all values. */
    double sum;                     /* Sum of all values. */
};

/* Returns the sum of all samples of the family, with any labels. NaN and infinite values are
 * skipped. */
double page_sum(const char *page, const char *family);

/* Reads a histogram. `family` has no suffix such as "_bucket". If the family has several series
 * (sets of labels), their counts are added up; their bounds must be equal. */
void page_histogram_read(const char *page, const char *family, struct page_histogram *out);
/* Subtracts an earlier reading of the histogram: *now then has only the values since *before. If
 * now->total is below before->total (the gateway was started again), or if the numbers of bounds
 * differ, *now does not change. */
void page_histogram_since(struct page_histogram *now, const struct page_histogram *before);

/* Returns the value below which this share (0 to 1) of the values lies, interpolated between
 * bounds. Values above the last bound count as the last bound. -1 = no values, or no bounds. */
double page_quantile(const struct page_histogram *histogram, double share);
/* Returns the share (0 to 1) of the values up to `limit`, interpolated between bounds. Values above
 * the last bound count as above `limit`. -1 = no values. */
double page_share_up_to(const struct page_histogram *histogram, double limit);

#endif
