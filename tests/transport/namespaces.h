/* namespaces: moves a test into namespaces of its own, so that it does not share the network,
 * System V IPC or mounts of the computer. This also works in a container, in a chroot, and for an
 * ordinary user if the kernel allows user namespaces. Tests of the transport call it on their only
 * thread, before they start others. The functions return false if the kernel refuses; errno has the
 * reason. Nothing is left behind: the kernel removes a namespace with the last process in it. */
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
static inline bool namespaces_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* Moves this process, which must have one thread, to new namespaces of these kinds (CLONE_NEW…), if
 * need be as root of a new user namespace. */
static inline bool namespaces_enter(int kinds)
{
    char users[64], groups[64];
    if (unshare(kinds) == 0)
        return true;
    snprintf(users, sizeof(users), "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof(groups), "0 %u 1", (unsigned)getegid());
    return unshare(kinds | CLONE_NEWUSER) == 0 &&
           namespaces_write("/proc/self/setgroups", "deny") &&
           namespaces_write("/proc/self/uid_map", users) &&
           namespaces_write("/proc/self/gid_map", groups);
}

/* Mounts a file system at `path` for this process and its children. Requires a mount namespace of
 * this process's own (CLONE_NEWNS), and that "/", `path` or the folder above `path` is a mount
 * point: in a chroot "/" is none. */
static inline bool namespaces_mount(const char *type, const char *path, unsigned long flags,
                                    const char *data)
{
    char above[256];
    snprintf(above, sizeof(above), "%s", path);
    char *slash = strrchr(above, '/');
    *(slash == above ? slash + 1 : slash) = 0;
    return (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
            mount(NULL, path, NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
            mount(NULL, above, NULL, MS_REC | MS_PRIVATE, NULL) == 0) &&
           mount(type, path, type, flags, data) == 0;
}

/* Moves this process to a new network namespace, whose devices it sees in /sys. */
static inline bool namespaces_enter_net(void)
{
    return namespaces_enter(CLONE_NEWNET | CLONE_NEWNS) &&
           namespaces_mount("sysfs", "/sys", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

#endif
