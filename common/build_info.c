/* build_info: see the header. */
#include "common/build_info.h"

static const char *built_from = "";

void build_info_commit_set(const char *commit)
{
    built_from = commit;
}

const char *build_info_commit(void)
{
    return built_from;
}

const char *build_info_release(void)
{
    return CLEAVE_VERSION;
}

const char *build_info_options(void)
{
    return CLEAVE_BUILD_OPTIONS;
}

void build_info_print(FILE *out)
{
    fprintf(out, "cleave %s%s%s%s\nbuild  %s\n", build_info_release(),
            built_from[0] != 0 ? " (" : "", built_from, built_from[0] != 0 ? ")" : "",
            build_info_options());
}
