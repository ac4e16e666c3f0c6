/* lfs_pointer: recognises the small text file that a checkout without Git LFS has in the place of a
 * model file. A pure function; owns nothing. */
#ifndef MODEL_FILE_LFS_POINTER_H
#define MODEL_FILE_LFS_POINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LFS_POINTER_TEXT "a pointer of Git LFS, not the file itself: run git lfs pull"

/* Returns true if the file of this content is such a pointer. */
static inline bool is_lfs_pointer(const void *data, size_t bytes)
{
    static const char begin[] = "version https://git-lfs.";
    return bytes >= sizeof(begin) - 1 && memcmp(data, begin, sizeof(begin) - 1) == 0;
}

#endif
