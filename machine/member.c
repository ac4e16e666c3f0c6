/* machine_member: see the header. */
#include "machine/member.h"

#include "common/log.h"
#include "machine/state.h"
#include "membership/registration.h"

#include <stdlib.h>
#include <string.h>

struct machine_member {
    struct registration *registration;
    char name[LIMIT_NAME_BYTES];
};

static void on_state(void *self, bool registered, const char *text)
{
    const struct machine_member *member = self;
    if (registered)
        log_info("machine %s is registered: %s", member->name, text);
    else
        log_warn("machine %s is not registered: %s", member->name, text);
}

/* True for "0.0.0.0:7400" and "[::]:7400", which other hosts cannot connect to. */
static bool is_wildcard(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

enum status machine_member_open(const struct config *config, const struct machine *m,
                                const char *name, const char *address, struct machine_member **out,
                                struct error *error)
{
    const struct config_machine *entry = &config->machines[config_machine_find(config, name)];
    struct member self = {.pool = entry->pool,
                          .metadata_hash = machine_metadata_hash(m),
                          .model_hash = *machine_model_hash(m)};
    const char *told = is_wildcard(address) ? entry->address : address;
    if (told[0] == 0 || is_wildcard(told))
        return error_set(error, ST_INVALID,
                         "listen on %s: gateways that find this machine in etcd cannot reach that: "
                         "want machines/%s/address",
                         address, name);
    struct machine_member *member = calloc(1, sizeof(*member));
    if (member == NULL)
        return error_set(error, ST_NO_MEMORY, "machine %s: out of memory", name);
    snprintf(member->name, sizeof(member->name), "%s", name);
    snprintf(self.name, sizeof(self.name), "%s", name);
    snprintf(self.address, sizeof(self.address), "%s", told);
    const struct registration_options options = {
        .config = config,
        .prefix = config->cluster.etcd_prefix,
        .lease_s = config->cluster.etcd_lease_s,
        .clock = m->options.clock,
        .member = &self,
        .state_changed = on_state,
        .self = member,
    };
    enum status status = registration_open(&options, &member->registration, error);
    if (status != ST_OK) {
        free(member);
        return status;
    }
    *out = member;
    return ST_OK;
}

void machine_member_close(struct machine_member *member)
{
    if (member == NULL)
        return;
    registration_close(member->registration);
    free(member);
}

int machine_member_fd(const struct machine_member *member)
{
    return member != NULL ? registration_fd(member->registration) : -1;
}

int machine_member_turn(struct machine_member *member, const struct machine *m, int timeout_ms)
{
    if (member == NULL)
        return timeout_ms;
    if (m->stopping)
        registration_remove(member->registration);
    int own_ms = registration_turn(member->registration);
    return own_ms >= 0 && (timeout_ms < 0 || own_ms < timeout_ms) ? own_ms : timeout_ms;
}

bool machine_member_may_end(const struct machine_member *member)
{
    return member == NULL || registration_removed(member->registration);
}
