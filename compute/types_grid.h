/* types_grid: the grids of the IQ1, IQ2 and IQ3 types of GGUF: lists of points. A coordinate is the
 * number of the magnitude of an element (in IQ1: of its value before the shift), and a point
 * belongs to 8 or 4 neighbouring elements. types_coded.c calls it, on any thread. types_grid.c
 * stores each grid as a set of points and makes the list at the first call. It does not know signs
 * or scales. */
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

/* Returns the coordinates of point `index`: 8 or 4 bytes. Requires that `index` is less than the
 * number of points. */
const uint8_t *types_grid_point(enum types_grid grid, uint32_t index);

#endif
