/* children: runs a function in a child process, with given environment variables, and returns what
 * the child wrote to standard error. Tests use it for checks that end the process, and for
 * variables that are read once per process. The test calls it on its only thread, because it forks.
 * It sets no time limit. */
#ifndef TESTS_GPU_CHILDREN_H
#define TESTS_GPU_CHILDREN_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct child_end {
    int status; /* Exit status as waitpid returns it. */
    std::string text;

    bool exited(int code) const
    {
        return WIFEXITED(status) && WEXITSTATUS(status) == code;
    }
    bool aborted() const
    {
        return WIFSIGNALED(status);
    }
    bool says(const char *part) const
    {
        return text.find(part) != std::string::npos;
    }
};

/* Runs `run` in a child process and waits for its end. environment: "NAME=VALUE NAME=VALUE". The
 * result of `run` is the exit status. */
static inline struct child_end child_run(const char *environment, const std::function<int()> &run)
{
    int pipes[2];
    if (pipe(pipes) != 0)
        exit(1);
    fflush(nullptr);
    pid_t process = fork();
    if (process == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        char text[512];
        snprintf(text, sizeof(text), "%s", environment);
        for (char *word = strtok(text, " "); word != nullptr; word = strtok(nullptr, " "))
            putenv(strdup(word));
        exit(run());
    }
    close(pipes[1]);
    struct child_end end = {};
    char part[4096];
    for (ssize_t got; (got = read(pipes[0], part, sizeof(part))) > 0;)
        end.text.append(part, (size_t)got);
    close(pipes[0]);
    waitpid(process, &end.status, 0);
    return end;
}

#endif
