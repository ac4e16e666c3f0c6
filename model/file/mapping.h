/* mapping: read-only mappings of model files. It owns a list of the mappings of the process. If a
 * file becomes shorter while it is mapped, the kernel sends SIGBUS to the thread that reads the
 * missing part; the signal handler of this part then prints the file's name and ends the process.
 * The readers of model/file/ map and unmap files, on any thread. The program's main.c installs the
 * handler. This part does not check what a file contains. */
#ifndef MODEL_FILE_MAPPING_H
#define MODEL_FILE_MAPPING_H

#include <stddef.h>

/* Maps the first `bytes` bytes of the open file `fd`. `name` (its first 127 bytes) is for the
 * handler's message. Returns NULL, with errno set, on failure. The caller may close `fd`, and
 * unmaps the file with mapping_close. With more than 4,352 mappings, the further ones are not in
 * the list of the handler. */
const void *mapping_open(int fd, size_t bytes, const char *name);
/* Unmaps a file. `data` and `bytes` are those of mapping_open. */
void mapping_close(const void *data, size_t bytes);

/* Installs the handler: SIGBUS in a mapping of the list ends the process with exit status 1 and a
 * message on stderr. Another SIGBUS has its default effect. Call it before other threads start. */
void mapping_fault_handler_install(void);

#endif
