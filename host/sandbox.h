/* sandbox: takes away rights that a process of cleave does not need, so that a client or a peer
 * that takes over the process gets few rights. Seccomp refuses system calls; Landlock limits files
 * (docs/security.md). The main thread of a gateway, a machine or a stage process calls it once,
 * before it starts any thread: threads and processes that are started later inherit the limits;
 * threads that already run do not get them. Limits cannot be taken back. If the kernel lacks one of
 * the two features, or the feature cannot be used, the process runs without it, and the text for
 * the log says so. Sockets, memory and time are not limited. */
#ifndef HOST_SANDBOX_H
#define HOST_SANDBOX_H

#include "config/config.h"

#define SANDBOX_TEXT_BYTES 256

/* Limits a gateway: it may start this executable only, and write only in the folders of the files
 * that log/ names, of http/admin_socket, in kv/tiers/file/path, in /dev/shm and /dev/hugepages, and
 * to devices (such as /dev/null, RDMA and GPUs). It may read every file that its user may, because
 * a reload can name any model and any key. Changes nothing if cluster/sandbox is false or a local
 * machine uses a GPU. Writes one line for the log. */
void sandbox_gateway_enter(const struct config *config, char text_out[SANDBOX_TEXT_BYTES]);
/* Limits the process of a machine or of a stage: it may read the model, the draft model and the
 * adapters, the folders of the files that the config names (in / and /etc only the files), and
 * files of the system; and it may write only in kv/tiers/file/path, in /dev/shm and /dev/hugepages,
 * and to devices (such as /dev/null and RDMA). Only a machine with stages may start processes, of
 * this executable. Files are not limited if transport/ucx_transports is set, or in the stage
 * processes of a machine with ranks. Changes nothing if cluster/sandbox is false or the machine
 * uses a GPU. is_stage: the process computes a stage. Writes one line for the log. */
void sandbox_machine_enter(const struct config *config, const struct config_machine *machine,
                           bool is_stage, char text_out[SANDBOX_TEXT_BYTES]);

#endif
