/* lane_choice: decides from the times of batches whether lanes are faster (lanes.c). Batches are put
 * into classes by their rows per lane. Of two batches of a class that follow each other, one with
 * lanes and one without, with about as many rows, the ratio of the times per row is a sample. Until
 * a class has a few samples, the distance between the cores decides. From time to time a batch is
 * computed in the other way, to get samples: often at first, then seldom.
 *
 * Cores that are far from each other and cores that are near have separate classes, because a
 * virtual machine's cores can change from one to the other.
 *
 * Pure: no clock and no I/O. One thread uses a struct lane_choice. */
#ifndef COMPUTE_CPU_LANE_CHOICE_H
#define COMPUTE_CPU_LANE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

/* Class i has batches with 4 × 2^i to 4 × 2^(i+1) - 1 rows per lane; the last class also has larger
 * ones, the first also smaller ones. */
#define LANE_CHOICE_CLASSES 6
/* Latest batches of a class with which the next one can be compared. */
#define LANE_CHOICE_LATEST 4

struct lane_choice_class {
    double log_ratio; /* Mean logarithm of (time with lanes / time without) per row. */
    uint32_t samples; /* Samples in the mean; counted up to a limit. */
    uint64_t asked;   /* Calls of lane_choice_pick. */
    uint64_t added;   /* Calls of lane_choice_add. */
    struct lane_choice_batch {
        uint32_t rows; /* 0 = none yet. */
        bool in_lanes;
        double us;
        int64_t ended_us;
    } latest[LANE_CHOICE_LATEST]; /* Ring of batches. Batches of several sizes may alternate. */
};

/* All zeros = nothing is known. */
struct lane_choice {
    struct lane_choice_class classes[2][LANE_CHOICE_CLASSES]; /* [cores are far from each other] */
};

/* Returns true if the next batch, of `rows` ≥ 1 rows, should have lanes. lanes: number of lanes, ≥
 * 2. far: the cores are far from each other. now_us: microseconds of a monotonic clock. */
bool lane_choice_pick(struct lane_choice *choice, uint32_t rows, uint32_t lanes, bool far,
                      int64_t now_us);

/* Records that a batch ended at now_us and took us > 0 microseconds. `rows`, `lanes` and `far` are
 * those of lane_choice_pick; in_lanes: what it returned. */
void lane_choice_add(struct lane_choice *choice, uint32_t rows, uint32_t lanes, bool far,
                     bool in_lanes, int64_t now_us, double us);

#endif
