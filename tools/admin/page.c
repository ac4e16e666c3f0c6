/* admin_page: see the header. */
#include "tools/admin/page.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the next sample of a family from *at on. labels_out: after the brace; NULL = no labels. */
static bool sample_next(const char **at, const char *name, const char **labels_out,
                        double *value_out)
{
    const size_t bytes = strlen(name);
    const char *line = *at;
    while (*line != 0) {
        const size_t length = strcspn(line, "\n");
        const char *rest = line + bytes, *end = line + length;
        const char *next = end + (*end == '\n');
        if (strncmp(line, name, bytes) == 0 && (*rest == '{' || *rest == ' ')) {
            *labels_out = *rest == '{' ? rest + 1 : NULL;
            /* The value follows the last blank; values of labels may have blanks. */
            const char *blank = end;
            while (blank > rest && *blank != ' ')
                blank--;
            *value_out = strtod(blank, NULL);
            *at = next;
            if (isfinite(*value_out))
                return true;
        }
        line = next;
    }
    return false;
}

double page_sum(const char *page, const char *family)
{
    const char *labels;
    double value, sum = 0;
    while (sample_next(&page, family, &labels, &value))
        sum += value;
    return sum;
}

/* Adds a bucket, in the order of the bounds. */
static void bucket_add(struct page_histogram *h, double bound, double up_to)
{
    uint32_t i = 0;
    while (i < h->bound_count && h->bounds[i] < bound)
        i++;
    if (i < h->bound_count && h->bounds[i] == bound) {
        h->up_to[i] += up_to;
        return;
    }
    if (h->bound_count == PAGE_BOUNDS_MAX)
        return;
    memmove(h->bounds + i + 1, h->bounds + i, (h->bound_count - i) * sizeof(h->bounds[0]));
    memmove(h->up_to + i + 1, h->up_to + i, (h->bound_count - i) * sizeof(h->up_to[0]));
    h->bounds[i] = bound;
    h->up_to[i] = up_to;
    h->bound_count++;
}

void page_histogram_read(const char *page, const char *family, struct page_histogram *out)
{
    char samples[128];
    const char *at = page, *labels;
    double value;
    *out = (struct page_histogram){.bound_count = 0};
    snprintf(samples, sizeof(samples), "%s_bucket", family);
    while (sample_next(&at, samples, &labels, &value)) {
        const char *bound = labels != NULL ? strstr(labels, "le=\"") : NULL;
        if (bound != NULL && bound < strchr(labels, '}') && bound[4] != '+')
            bucket_add(out, strtod(bound + 4, NULL), value);
    }
    snprintf(samples, sizeof(samples), "%s_count", family);
    out->total = page_sum(page, samples);
    snprintf(samples, sizeof(samples), "%s_sum", family);
    out->sum = page_sum(page, samples);
}

void page_histogram_since(struct page_histogram *now, const struct page_histogram *before)
{
    if (now->bound_count != before->bound_count || now->total < before->total)
        return;
    for (uint32_t i = 0; i < now->bound_count; i++)
        now->up_to[i] -= before->up_to[i];
    now->total -= before->total;
    now->sum -= before->sum;
}

double page_quantile(const struct page_histogram *histogram, double share)
{
    const double wanted = share * histogram->total;
    if (histogram->total <= 0 || histogram->bound_count == 0)
        return -1;
    for (uint32_t i = 0; i < histogram->bound_count; i++) {
        if (histogram->up_to[i] < wanted)
            continue;
        const double low = i > 0 ? histogram->bounds[i - 1] : 0,
                     before = i > 0 ? histogram->up_to[i - 1] : 0;
        const double inside = histogram->up_to[i] - before;
        return inside > 0 ? low + (histogram->bounds[i] - low) * (wanted - before) / inside
                          : histogram->bounds[i];
    }
    return histogram->bounds[histogram->bound_count - 1];
}

double page_share_up_to(const struct page_histogram *histogram, double limit)
{
    if (histogram->total <= 0)
        return -1;
    double low = 0, before = 0;
    for (uint32_t i = 0; i < histogram->bound_count; i++) {
        if (histogram->bounds[i] >= limit) {
            const double part = (limit - low) / (histogram->bounds[i] - low);
            return (before + (histogram->up_to[i] - before) * part) / histogram->total;
        }
        low = histogram->bounds[i];
        before = histogram->up_to[i];
    }
    return before / histogram->total;
}
