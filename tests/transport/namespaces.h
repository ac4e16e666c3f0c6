/* namespaces: moves a test into namespaces of its own, so that it does not share the network,
 * System V IPC or mounts of the computer. This also works in a container, in a chroot, and for an
 * ordinary user if the kernel allows user namespaces. Tests of the transport call it on their only
 * thread, before they start others. The functions return false if the kernel refuses; errno has the
 * reason, and the process may already be in some of the namespaces. They configure no network:
 * in a new network namespace, even loopback is down. A process cannot return to its old namespaces.
 * The kernel removes a namespace with the last process in it. */
#ifndef TESTS_TRANSPORT_NAMESPACES_H
#define TESTS_TRANSPORT_NAMESPACES_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* Writes a text to a file of /proc. */
static inline bool namespaces_proc_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* Moves this process, which must have one thread, to new namespaces of these kinds (CLONE_NEW…). If
 * the user may not do that, the process first becomes root of a new user namespace. */
static inline bool namespaces_enter(int kinds)
{
    char uid_map[64], gid_map[64];
    if (unshare(kinds) == 0)
        return true;
    snprintf(uid_map, sizeof(uid_map), "0 %u 1", (unsigned)geteuid());
    snprintf(gid_map, sizeof(gid_map), "0 %u 1", (unsigned)getegid());
    return unshare(kinds | CLONE_NEWUSER) == 0 &&
           namespaces_proc_write("/proc/self/setgroups", "deny") &&
           namespaces_proc_write("/proc/self/uid_map", uid_map) &&
           namespaces_proc_write("/proc/self/gid_map", gid_map);
}

/* Mounts a file system at `path` (at most 255 bytes) for this process and its children. Requires a
 * mount namespace of this process's own (CLONE_NEWNS), and that "/", `path` or the parent folder of
 * `path` is a mount point. (In a chroot, "/" may be no mount point.) */
static inline bool namespaces_mount(const char *type, const char *path, unsigned long flags,
                                    const char *data)
{
    char parent[256];
    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    *(slash == parent ? slash + 1 : slash) = 0;
    return (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
            mount(NULL, path, NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
            mount(NULL, parent, NULL, MS_REC | MS_PRIVATE, NULL) == 0) &&
           mount(type, path, type, flags, data) == 0;
}

/* Moves this process to a new network namespace and a new mount namespace, where /sys shows the
 * devices of the network namespace. */
static inline bool namespaces_enter_net(void)
{
    return namespaces_enter(CLONE_NEWNET | CLONE_NEWNS) &&
           namespaces_mount("sysfs", "/sys", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

#endif
