/* types_grid: the grids of the quantised types IQ1, IQ2 and IQ3 of GGUF. A grid is a fixed list of
 * points. A block of these types stores indices of points. Each point stands for 8 or 4
 * neighbouring elements, and has one coordinate for each of these elements. A coordinate is an
 * index into the type's list of magnitudes (in IQ1, its list of values). types_coded.c uses the
 * grids. This part owns the grids, and does not know magnitudes, signs or scales. Any thread. */
#ifndef COMPUTE_TYPES_GRID_H
#define COMPUTE_TYPES_GRID_H

#include <stdint.h>

enum types_grid {
    GRID_IQ2_XXS, /* 256 points of 8 coordinates from 0 to 2. */
    GRID_IQ2_XS,  /* 512 points of 8 coordinates from 0 to 2. */
    GRID_IQ2_S,   /* 1024 points of 8 coordinates from 0 to 2. */
    GRID_IQ1,     /* 2048 points of 8 coordinates from 0 to 2. */
    GRID_IQ3_XXS, /* 256 points of 4 coordinates from 0 to 7. */
    GRID_IQ3_S,   /* 512 points of 4 coordinates from 0 to 7. */
    GRID_COUNT
};

/* Returns the coordinates of a point, one byte each; valid until the process ends. Requires that
 * point_index is less than the grid's number of points. */
const uint8_t *types_grid_point(enum types_grid grid, uint32_t point_index);

#endif
