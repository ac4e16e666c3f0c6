/* sandbox: takes away rights that a process of cleave does not need, so that an attacker who takes
 * over the process gets few rights (docs/security.md). Two features of the kernel set the limits:
 * seccomp refuses system calls, and Landlock limits which files can be read, written and started.
 * The main thread of a gateway, a machine or a stage process makes one of the calls before it
 * starts any thread. Threads and processes that are started later inherit the limits. Limits cannot
 * be taken back. If a feature cannot be used, the process runs without the feature, and text_out
 * says so. The sandbox owns nothing. It does not limit sockets, memory and time. */
#ifndef HOST_SANDBOX_H
#define HOST_SANDBOX_H

#include "config/config.h"

#define SANDBOX_TEXT_BYTES 256

/* Limits a gateway. The gateway may read every file, but start only this executable. It may write
 * only:
 * - in the folders of the files that http/admin_socket and the keys below log/ name (in / and /etc:
 *   only the files),
 * - in kv/tiers/file/path, /dev/shm and /dev/hugepages,
 * - to devices such as /dev/null, RDMA and GPUs.
 * Limits nothing if cluster/sandbox is false or a local machine uses a GPU. text_out receives one
 * line for the log. */
void sandbox_gateway_enter(const struct config *config, char text_out[SANDBOX_TEXT_BYTES]);
/* Limits the process of a machine, or a stage process. seccomp permits only the head of a machine
 * with stages to start executables. Landlock permits the head to start this executable only.
 * Landlock permits reading of the model, the draft model, the adapters, the folders of other files
 * that a machine reads (in / and /etc: only the files), libraries, and files of the system. It
 * permits writing in kv/tiers/file/path, /dev/shm and /dev/hugepages, and to devices such as
 * /dev/null and RDMA. Landlock is not used if transport/ucx_transports is set, nor by stage
 * processes of a machine with ranks. Limits nothing if cluster/sandbox is false or the machine uses
 * a GPU. is_stage: this is a stage process. text_out receives one line for the log. */
void sandbox_machine_enter(const struct config *config, const struct config_machine *machine,
                           bool is_stage, char text_out[SANDBOX_TEXT_BYTES]);

#endif
