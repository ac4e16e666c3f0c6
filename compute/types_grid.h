/* types_grid: the grids of the IQ1, IQ2 and IQ3 types: lists of points, whose coordinates are the
 * magnitudes of 8 or 4 neighbouring elements. types_coded.c calls it, on any thread. The lists are
 * facts of the GGUF format. They are kept as sets here and listed at the first call. */
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

/* Returns the coordinates of point `index`: 8 or 4 bytes. `index` must be below the number of
 * points. */
const uint8_t *types_grid_point(enum types_grid grid, uint32_t index);

#endif
