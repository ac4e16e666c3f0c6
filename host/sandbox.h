/* sandbox: takes away rights that a process of cleave does not need, so that an attacker who takes
 * over the process gets few rights (docs/security.md). Two features of the kernel do this: seccomp
 * refuses system calls, and Landlock limits files. The main thread of a gateway, a machine or a
 * stage process makes one of the calls once, before it starts any thread. Threads and processes
 * that are started later inherit the limits; threads that already run are not limited. Limits
 * cannot be taken back. If one of the two features cannot be used, the process runs without it, and
 * text_out says so. The sandbox owns nothing. It does not limit sockets, memory and time. */
#ifndef HOST_SANDBOX_H
#define HOST_SANDBOX_H

#include "config/config.h"

#define SANDBOX_TEXT_BYTES 256

/* Limits a gateway. The gateway may start this executable only. It may write only in the folders of
 * the files that log/ and http/admin_socket name, in kv/tiers/file/path, in /dev/shm and
 * /dev/hugepages, and to devices such as /dev/null, RDMA and GPUs. (In / and /etc it may write only
 * the files themselves.) It may read every file that its user may read, because a reload can name
 * any model and any key. Limits nothing if cluster/sandbox is false or a local machine uses a GPU.
 * text_out receives one line for the log. */
void sandbox_gateway_enter(const struct config *config, char text_out[SANDBOX_TEXT_BYTES]);
/* Limits the process of a machine, or a stage process. The process may read only the model, the
 * draft model, the adapters, the folders of other files that a machine reads (in / and /etc only
 * the files), libraries, and files of the system. It may write only in kv/tiers/file/path, in
 * /dev/shm and /dev/hugepages, and to devices such as /dev/null and RDMA. Only the head of a
 * machine with stages may start processes, and only of this executable. Files are not limited if
 * transport/ucx_transports is set, and in the stage processes of a machine with ranks. Limits
 * nothing if cluster/sandbox is false or the machine uses a GPU. is_stage: this is a stage process.
 * text_out receives one line for the log. */
void sandbox_machine_enter(const struct config *config, const struct config_machine *machine,
                           bool is_stage, char text_out[SANDBOX_TEXT_BYTES]);

#endif
