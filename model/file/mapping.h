/* mapping: read-only mappings of model files, and what happens if such a file becomes shorter while
 * it is mapped. The kernel then sends SIGBUS to the thread that reads the missing part; the handler
 * names the file and ends the process. Weights are not copied instead, because a mapping is shared
 * by all processes of a host and costs no time at start. Any thread may call the functions. */
#ifndef MODEL_FILE_MAPPING_H
#define MODEL_FILE_MAPPING_H

#include <stddef.h>

/* Maps a whole file. `name` is used when the file becomes shorter. Returns NULL with errno. */
const void *mapping_open(int fd, size_t bytes, const char *name);
void mapping_close(const void *data, size_t bytes);

/* From now on a fault in a mapping ends the process with exit status 1 and a message on stderr;
 * other faults do what they did before. Call it once, before other threads exist. */
void mapping_faults_report(void);

#endif
