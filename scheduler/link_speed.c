/* link_speed: see the header. */
#include "scheduler/link_speed.h"

#include <math.h>

#define US_PER_S          1e6
#define ERROR_PERCENT_MAX 1000
#define FIXED_US_MIN      0.001 /* A smaller fixed part is a rounding error. */

/* A line without a fixed part goes through the origin, with the least squares. rates_line_fit takes
 * the line through the mean instead, and as errors count as parts of the time, small transfers would
 * have nearly all weight in the mean.
 *
 * Buffers of the network take the first bytes at once (such as 100 KB in the queue of a limited
 * link), so small transfers look several times as fast as the link is. This line is the line of
 * `large`, where they have little weight. */
static void line_fit(const struct link_speed *speed, double *fixed_us_out, double *byte_us_out)
{
    rates_line_fit(&speed->line, fixed_us_out, byte_us_out);
    if (*fixed_us_out < FIXED_US_MIN) {
        *fixed_us_out = 0;
        *byte_us_out = speed->large.rows_us / speed->large.rows_rows;
    }
}

void link_speed_add(struct link_speed *speed, uint64_t bytes, uint64_t us)
{
    double took_us = (double)us;
    if (bytes == 0 || us == 0)
        return;
    const uint32_t before = speed->transfers;
    if (speed->transfers < LINK_SPEED_TRANSFERS)
        speed->transfers++;
    speed->mean_bytes += ((double)bytes - speed->mean_bytes) / (double)speed->transfers;
    const double share = fmin(1, (double)bytes / speed->mean_bytes);
    if (before > 0) {
        double fixed_us, byte_us;
        line_fit(speed, &fixed_us, &byte_us);
        const double expected_us = fmax(fixed_us + byte_us * (double)bytes, 1);
        speed->log_error += (fabs(log(took_us / expected_us)) - speed->log_error) / (double)before;
        took_us = sched_rates_outlier_limit(took_us, expected_us);
    }
    speed->fastest_bytes_per_us = fmax(speed->fastest_bytes_per_us, (double)bytes / took_us);
    const double weight = 1 / (took_us * took_us), keep = 1 - 1.0 / LINK_SPEED_TRANSFERS;
    rates_line_add(&speed->line, keep, weight, (double)bytes, took_us);
    rates_line_add(&speed->large, keep, weight * share, (double)bytes, took_us);
}

struct link_estimate link_speed_estimate(const struct link_speed *speed)
{
    if (speed->transfers == 0)
        return (struct link_estimate){.bytes_per_s = 0};
    double fixed_us, byte_us;
    line_fit(speed, &fixed_us, &byte_us);
    const double rate =
        byte_us * speed->fastest_bytes_per_us > 1 ? 1 / byte_us : speed->fastest_bytes_per_us;
    return (struct link_estimate){
        .latency_us = (uint32_t)fmin(fixed_us, UINT32_MAX),
        .error_percent = (uint32_t)fmin(ceil(expm1(speed->log_error) * 100), ERROR_PERCENT_MAX),
        .bytes_per_s = (uint64_t)fmax(rate * US_PER_S, 1),
    };
}
