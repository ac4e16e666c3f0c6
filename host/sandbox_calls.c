/* sandbox_calls: refuses system calls with a seccomp filter. The list names calls that change the
 * system, look into other processes or load code into the kernel; all other calls are permitted, so
 * that a library that uses a new call continues to work. */
#include "host/sandbox_internal.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0 /* No filter. */
#endif

#define X32_BIT 0x40000000 /* On x86-64: calls with 32-bit pointers. */

/* Numbers above 423 are the same on all architectures. */
static const uint32_t refused[] = {
    /* kernel modules, other kernels, and code in the kernel */
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    425 /* io_uring_setup */,
    426 /* io_uring_enter */,
    427 /* io_uring_register */,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
/* other processes; LeakSanitizer traces its own */
#ifndef __SANITIZE_ADDRESS__
    SYS_ptrace,
#endif
    SYS_kcmp,
    438 /* pidfd_getfd */,
    440 /* process_madvise */,
    /* file systems and namespaces */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_quotactl,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    428 /* open_tree */,
    429 /* move_mount */,
    430 /* fsopen */,
    431 /* fsconfig */,
    432 /* fsmount */,
    433 /* fspick */,
    442 /* mount_setattr */,
    /* keys of the kernel, the computer's clock and name */
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_reboot,
    SYS_syslog,
    SYS_vhangup,
    /* other users, ports of devices */
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_capset,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
};
static const uint32_t starts[] = {SYS_execve, SYS_execveat};

#define REFUSED_COUNT (sizeof(refused) / sizeof(refused[0]))
#define STARTS_COUNT  (sizeof(starts) / sizeof(starts[0]))
#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

#define FIELD(name) offsetof(struct seccomp_data, name)
#define LOAD(name)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(name))
/* Skips the next `skip` instructions if the condition does not hold. */
#define IF(test, value, skip) BPF_JUMP(BPF_JMP | BPF_K | (test), value, 0, skip)
#define ANSWER(value)         BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(number)        ANSWER(SECCOMP_RET_ERRNO | (number))

struct program {
    uint16_t count;
    struct sock_filter code[2 * (REFUSED_COUNT + STARTS_COUNT) + 32];
};

static void put(struct program *p, struct sock_filter instruction)
{
    p->code[p->count++] = instruction;
}

static void refuse_call(struct program *p, uint32_t number, int answer)
{
    put(p, (struct sock_filter)IF(BPF_JEQ, number, 1));
    put(p, (struct sock_filter)REFUSE((uint32_t)answer));
}

static void program_write(struct program *p, bool starts_processes)
{
    p->count = 0;
    put(p, (struct sock_filter)LOAD(arch));
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_K | BPF_JEQ, ARCHITECTURE, 1, 0));
    put(p, (struct sock_filter)REFUSE(EPERM));
    put(p, (struct sock_filter)LOAD(nr));
#ifdef __x86_64__
    put(p, (struct sock_filter)IF(BPF_JGE, X32_BIT, 1));
    put(p, (struct sock_filter)REFUSE(EPERM));
#endif
    for (size_t i = 0; i < REFUSED_COUNT; i++)
        refuse_call(p, refused[i], EPERM);
    for (size_t i = 0; i < STARTS_COUNT && !starts_processes; i++)
        refuse_call(p, starts[i], EPERM);
    /* A filter cannot read the flags of clone3. With ENOSYS, the C library uses clone. */
    refuse_call(p, 435, ENOSYS);
    put(p, (struct sock_filter)IF(BPF_JEQ, SYS_clone, 3));
    put(p,
        (struct sock_filter)LOAD(args[0])); /* the low half: both architectures are little-endian */
    put(p, (struct sock_filter)IF(BPF_JSET, NAMESPACES, 1));
    put(p, (struct sock_filter)REFUSE(EPERM));
    put(p, (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
}

enum status sandbox_syscalls_limit(bool starts_processes, struct error *error)
{
    struct program program;
    if (ARCHITECTURE == 0)
        return error_set(error, ST_UNSUPPORTED, "no filter for this processor");
    program_write(&program, starts_processes);
    struct sock_fprog filter = {program.count, program.code};
    /* Without this flag, kernels before 5.16 make the whole process slower. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) == 0)
        return ST_OK;
    bool is_missing = errno == EINVAL || errno == ENOSYS;
    return error_set(error, is_missing ? ST_UNSUPPORTED : ST_IO, "seccomp: %s", strerror(errno));
}
