/* mapping: read-only mappings of model files, with a list of the mappings of the process (up to
 * 4,352). If a file becomes shorter while it is mapped, the kernel sends SIGBUS to the thread that
 * reads the missing part; the signal handler then prints the file's name and ends the process. The
 * readers of model/file/ map and unmap files; the program's main.c installs the handler. Any thread
 * may call mapping_open and mapping_close: the list has a lock. It does not check what a file
 * contains. */
#ifndef MODEL_FILE_MAPPING_H
#define MODEL_FILE_MAPPING_H

#include <stddef.h>

/* Maps the first `bytes` bytes of the file. `name` is for the handler's message. Returns NULL, with
 * errno set, on failure. The caller may close `fd`, and unmaps the file with mapping_close. */
const void *mapping_open(int fd, size_t bytes, const char *name);
void mapping_close(const void *data, size_t bytes);

/* Installs the handler: SIGBUS in a mapping of the list ends the process with exit status 1 and a
 * message on stderr. Elsewhere SIGBUS has its default effect. Requires that no other thread exists.
 */
void mapping_fault_handler_install(void);

#endif
