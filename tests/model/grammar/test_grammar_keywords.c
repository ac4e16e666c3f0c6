/* Goal: docs/constraints.md is what the code says. Method: this program prints the page with the
 * table of keywords of JSON schemas, and checks the committed page; each keyword of the table is
 * given to the compiler in a schema. */
#include "model/grammar/grammar.h"
#include "tests/page.h"

static const char head[] =
    "# Constrained answers\n"
    "\n"
    "A constraint decides which texts an answer may be. Before each token is sampled, a mask "
    "leaves only the tokens that\n"
    "keep the answer on its way to such a text; the end token is allowed exactly where the text "
    "may end. `finish_reason`\n"
    "is `stop` for a complete text and `length` if `max_tokens` cut it.\n"
    "\n"
    "| fields of the request | the answer is |\n"
    "|---|---|\n"
    "| `response_format: {\"type\": \"json_schema\", \"json_schema\": {\"schema\": …}}`, "
    "`guided_json`, `structured_outputs.json` | a JSON document of the schema, always strictly |\n"
    "| `response_format: {\"type\": \"json_object\"}`, `structured_outputs.json_object` | a JSON "
    "object |\n"
    "| `guided_regex`, `structured_outputs.regex` | a text that the expression matches as a whole "
    "|\n"
    "| `guided_choice`, `structured_outputs.choice` | one of the texts |\n"
    "| `guided_grammar`, `structured_outputs.grammar` | a text of the rule `root` of a grammar in "
    "GBNF (`name ::= …`) |\n"
    "\n"
    "[Calls of tools](tools.md) that a request demands are constraints too. Reasoning comes before "
    "the constrained text.\n\n"
    "A constraint that cannot be honoured exactly is a 400 with the reason and, for a schema, the "
    "JSON pointer of the\n"
    "keyword. A request has at most one constraint; `ignore_eos` and `min_tokens` are refused "
    "beside it. Log-probabilities\n"
    "are calculated before the mask is applied.\n"
    "\n"
    "## How documents are written\n"
    "\n"
    "- Between two parts of a document (brackets, names, values): nothing, one blank, or a line "
    "break with up to 40 blanks\n"
    "  and tabs. No white space before `:` and `,`, and none around the document.\n"
    "- Properties come in the order of the schema, other properties last. A name of the schema "
    "occurs at most once; other\n"
    "  names may be repeated.\n"
    "- Strings are UTF-8 and may have all escapes of JSON, except half of a surrogate pair. With "
    "`pattern` or `format`, and\n"
    "  in names and constants, only those characters are escaped that JSON demands.\n"
    "- Documents can be nested about 100 levels deep.\n"
    "\n"
    "## Keywords of JSON schemas\n"
    "\n"
    "Draft 2020-12; draft 7 where the two agree. Keywords that this page does not name have no "
    "effect, as the\n"
    "specification says. `build/tests/model/grammar/test_grammar_keywords --reference` prints this "
    "page.\n"
    "\n"
    "| honoured | |\n"
    "|---|---|\n";

static const char tail[] =
    "\n"
    "## Bounds\n"
    "\n"
    "A constraint has at most 64 KiB. Schemas have at most 64 levels and 20,000 combinations of "
    "subschemas; patterns that\n"
    "hold for one text together at most 8,192 states. The automaton has at most 400,000 nodes and "
    "20,000 rules, and no rule\n"
    "may begin with itself. While an answer is generated, a constraint may take 48 MiB (all of a "
    "machine 256 MiB): an answer\n"
    "whose constraint is so ambiguous that it needs more ends with an error.\n"
    "\n"
    "Seen: 1,000 random schemas, one answer of the default model each (test `schema answers`, "
    "2026-11-23): 741 valid by\n"
    "Python's jsonschema, 193 cut by `max_tokens`, 66 refused with a reason, none invalid. 400 "
    "constrained streams whose\n"
    "machines died had the same bytes as without deaths (`constraints, all`).\n"
    "\n"
    "## How it works\n"
    "\n"
    "`model/grammar/` compiles a constraint into an automaton over bytes with a stack. The "
    "gateway compiles it to check it;\n"
    "each machine compiles it again while the prompt waits and is computed. A machine that takes "
    "over an answer starts again\n"
    "from the constraint and the delivered tokens, so the bytes do not depend on where an answer "
    "moves\n"
    "([figures](performance.md#constrained-answers)). Where only one text may follow (the name of "
    "a "
    "required property), only\n"
    "its longest token is allowed, except at the end of the text, where a longer token could "
    "follow. On GPUs the logits of\n"
    "constrained answers are copied to the host. In a machine with stages, the masks of one batch "
    "have at most 2 MiB: 110\n"
    "constrained answers, if the vocabulary has 150,000 tokens.\n";

static void keywords_print(FILE *out, int use)
{
    for (size_t i = 0; i < grammar_keywords_count; i++)
        if ((int)grammar_keywords[i].use == use)
            fprintf(out, "| `%s` | %s |\n", grammar_keywords[i].name, grammar_keywords[i].note);
}

/* Prints a paragraph of the keywords that have no effect, one on each line. */
static void annotations_print(FILE *out)
{
    const char *before = "\nWithout effect: ";
    for (size_t i = 0; i < grammar_keywords_count; i++) {
        if (grammar_keywords[i].use != GRAMMAR_ANNOTATION)
            continue;
        fprintf(out, "%s`%s`", before, grammar_keywords[i].name);
        if (grammar_keywords[i].note[0] != 0)
            fprintf(out, " (%s)", grammar_keywords[i].note);
        before = ",\n";
    }
    fputs(".\n", out);
}

static void page_print(FILE *out)
{
    fputs(head, out);
    keywords_print(out, GRAMMAR_HONOURED);
    fputs("\n| refused | |\n|---|---|\n", out);
    keywords_print(out, GRAMMAR_REFUSED);
    annotations_print(out);
    fputs(tail, out);
}

/* A refused keyword is named in the error. An annotation may have any value. */
static void check_keywords(void)
{
    for (size_t i = 0; i < grammar_keywords_count; i++) {
        const struct grammar_keyword *keyword = &grammar_keywords[i];
        struct grammar *g;
        struct error error;
        char text[256];
        int bytes = snprintf(text, sizeof(text), "json_schema:{\"%s\":{\"x\":1}}", keyword->name);
        enum status status = grammar_open(text, (size_t)bytes, NULL, &g, &error);
        if (keyword->use == GRAMMAR_REFUSED)
            CHECKF(status == ST_UNSUPPORTED && strstr(error.text, keyword->name) != NULL, "%s",
                   keyword->name);
        if (keyword->use == GRAMMAR_ANNOTATION)
            CHECKF(status == ST_OK, "%s", keyword->name);
        if (status == ST_OK)
            grammar_close(g);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
        page_print(stdout);
        return 0;
    }
    check_keywords();
    page_check("docs/constraints.md", "build/tests/model/grammar/test_grammar_keywords --reference",
               page_print);
    return 0;
}
