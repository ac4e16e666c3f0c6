/* mapping: read-only mappings of model files, for the readers in model/file/. This part owns the
 * process's list of mappings; any thread may map and unmap files. If a mapped file becomes shorter,
 * or cannot be read, the kernel sends SIGBUS to the thread that reads the file. The signal handler
 * of this part then ends the process with a message. The content of files is not checked. */
#ifndef MODEL_FILE_MAPPING_H
#define MODEL_FILE_MAPPING_H

#include <stddef.h>

/* Maps the first `bytes` bytes of the open file `fd`. Returns NULL, with errno set, on failure. The
 * caller unmaps the file with mapping_close, and may close `fd` at once. The handler's message has
 * the first 127 bytes of `name`. The list has room for 4,352 mappings; a further mapping is not in
 * the list. */
const void *mapping_open(int fd, size_t bytes, const char *name);
/* Unmaps a file. `data` is the result of mapping_open, and `bytes` its argument. */
void mapping_close(const void *data, size_t bytes);

/* Installs the handler for the whole process; call it before other threads start. A SIGBUS in a
 * mapping of the list ends the process with exit status 1 and a message on stderr. A SIGBUS at
 * another address has its default effect. */
void mapping_fault_handler_install(void);

#endif
