/* schema: arrays. */
#include "model/grammar/schema.h"

#define PREFIX_MAX 1024

/* The list of schemas for the first items: prefixItems, or items of draft 7. */
static const json_t *prefix_of(struct schema *s, const struct facet *facet)
{
    const json_t *prefix = json_object_get(facet->schema, "prefixItems");
    const json_t *items = json_object_get(facet->schema, "items");
    if (prefix != NULL && !json_is_array(prefix))
        schema_refuse(s, ST_INVALID, facet->place, "prefixItems", "want a list of schemas");
    if (prefix != NULL && json_is_array(items))
        schema_refuse(s, ST_INVALID, facet->place, "items", "a list beside prefixItems");
    return prefix != NULL || !json_is_array(items) ? prefix : items;
}

/* The rule for item number `i`. */
static uint32_t item_rule(struct schema *s, const struct facets *list, size_t i)
{
    struct facets *item = schema_allocate(s, sizeof(*item));
    for (uint32_t k = 0; k < list->count && item != NULL; k++) {
        const struct facet *facet = &list->items[k];
        const json_t *prefix = prefix_of(s, facet);
        const bool old = json_is_array(json_object_get(facet->schema, "items"));
        const char *rest = old ? "additionalItems" : "items";
        if (i < json_array_size(prefix)) {
            const char *key = old ? "items" : "prefixItems";
            facets_add(s, item, json_array_get(prefix, i),
                       schema_pointer(s, schema_pointer(s, facet->place, key, 0), NULL, i));
        } else if (json_object_get(facet->schema, rest) != NULL)
            facets_add(s, item, json_object_get(facet->schema, rest),
                       schema_pointer(s, facet->place, rest, 0));
    }
    return item != NULL ? schema_rule(s, item) : 0;
}

static struct fragment next_item(struct schema *s, uint32_t rule)
{
    struct builder *b = s->b;
    return fragment_join(b, fragment_join(b, fragment_text(b, ","), schema_space(s)),
                         fragment_call(b, rule));
}

/* What follows item number i - 1 (or '[', for i = 0), up to the bracket. */
static struct fragment items_from(struct schema *s, const struct facets *list, size_t prefix,
                                  uint32_t least, uint32_t most)
{
    struct builder *b = s->b;
    uint32_t rule = item_rule(s, list, prefix);
    uint32_t done = (uint32_t)prefix;
    struct fragment rest = fragment_empty(b);
    if (done < most) {
        uint32_t need = least > done ? least - done : 0;
        uint32_t room = most == COUNT_UNLIMITED ? COUNT_UNLIMITED : most - done;
        if (done == 0) { /* The first item has no comma. */
            uint32_t more = room == COUNT_UNLIMITED ? room : room - 1;
            rest = fragment_join(
                b, fragment_call(b, rule),
                fragment_repeat(b, next_item(s, rule), need > 0 ? need - 1 : 0, more));
            rest = fragment_join(b, rest, schema_space(s));
            if (need == 0)
                rest = fragment_optional(b, rest);
            return rest;
        }
        rest = fragment_repeat(b, next_item(s, rule), need, room);
    } else if (done < least)
        return fragment_never(b);
    for (size_t i = prefix; i-- > 0;) {
        uint32_t item = item_rule(s, list, i);
        struct fragment one = i == 0 ? fragment_call(b, item) : next_item(s, item);
        if (i >= most)
            rest = least > i ? fragment_never(b) : fragment_empty(b);
        else {
            rest = fragment_join(b, one, rest);
            if (i == 0)
                rest = fragment_join(b, rest, schema_space(s));
            if (i >= least)
                rest = fragment_optional(b, rest);
        }
    }
    return rest;
}

struct fragment schema_array(struct schema *s, const struct facets *list)
{
    struct builder *b = s->b;
    uint32_t least = 0, most = COUNT_UNLIMITED;
    size_t prefix = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct facet *facet = &list->items[i];
        size_t items = json_array_size(prefix_of(s, facet));
        uint32_t low = schema_count(s, facet, "minItems", 0);
        uint32_t high = schema_count(s, facet, "maxItems", COUNT_UNLIMITED);
        prefix = items > prefix ? items : prefix;
        least = low > least ? low : least;
        most = high < most ? high : most;
        if (prefix > PREFIX_MAX)
            schema_refuse(s, ST_TOO_LARGE, facet->place, NULL, "more than %d prefix items",
                          PREFIX_MAX);
    }
    if (least > most || s->b->status != ST_OK)
        return fragment_never(b);
    struct fragment result = fragment_join(b, fragment_text(b, "["), schema_space(s));
    result = fragment_join(b, result, items_from(s, list, prefix, least, most));
    return fragment_join(b, result, fragment_text(b, "]"));
}
