/* Goal: docs/constraints.md is what the code says. Method: this program prints the page with the
 * table of keywords of JSON schemas, and checks the committed page; each keyword of the table is
 * given to the compiler in a schema. */
#include "model/grammar/grammar.h"
#include "tests/page.h"

static const char head[] =
    "# Constrained answers\n"
    "\n"
    "A constraint is a rule that the whole answer follows: a JSON schema, a regular expression, "
    "a list of texts, or a\n"
    "grammar. Before each token is sampled, a mask removes the tokens with which the answer "
    "could no longer follow the\n"
    "constraint. The end token is allowed only where the answer is complete. `finish_reason` is "
    "`stop` for a complete answer,\n"
    "and `length` if `max_tokens` cut the answer.\n"
    "\n"
    "| fields of the request | the answer is |\n"
    "|---|---|\n"
    "| `response_format: {\"type\": \"json_schema\", \"json_schema\": {\"schema\": …}}`, "
    "`guided_json`, `structured_outputs.json` | a JSON document that follows the schema, also "
    "without `strict: true` |\n"
    "| `response_format: {\"type\": \"json_object\"}`, `structured_outputs.json_object` | a JSON "
    "object |\n"
    "| `guided_regex`, `structured_outputs.regex` | a text that the expression matches as a "
    "whole |\n"
    "| `guided_choice`, `structured_outputs.choice` | one of the texts |\n"
    "| `guided_grammar`, `structured_outputs.grammar` | a text that the rule `root` of a GBNF "
    "grammar (`name ::= …`) describes |\n"
    "\n"
    "[Tool calls](tools.md) that a request forces are constraints too. Reasoning comes before "
    "the constrained text, and is\n"
    "free.\n"
    "\n"
    "A constraint that cleave cannot enforce exactly gets a 400 with the reason and, for a "
    "schema, the JSON pointer of the\n"
    "keyword. A request has at most one constraint; with a constraint, `ignore_eos` and "
    "`min_tokens` are refused.\n"
    "Log-probabilities are those before the mask.\n"
    "\n"
    "## How documents are written\n"
    "\n"
    "- Between two parts of a document (brackets, names, values) there is nothing, one blank, or "
    "a line break with up to 40\n"
    "  blanks and tabs. Before `:` and `,`, and around the document, there is no white space.\n"
    "- Properties are in the order of the schema, other properties come last. A property of the "
    "schema occurs at most once;\n"
    "  other names may occur several times.\n"
    "- Strings are UTF-8 and may have all escapes of JSON, except half of a surrogate pair. In "
    "strings with `pattern` or\n"
    "  `format`, in names and in constants, only characters that JSON requires to be escaped are "
    "escaped.\n"
    "- Documents can be nested about 100 levels deep.\n"
    "\n"
    "## Keywords of JSON schemas\n"
    "\n"
    "The keywords are those of draft 2020-12, and those of draft 7 that do not contradict it. "
    "Keywords that this page does\n"
    "not name have no effect, as the specification says. "
    "`build/tests/model/grammar/test_grammar_keywords --reference` prints\n"
    "this page.\n"
    "\n"
    "| honoured | how |\n"
    "|---|---|\n";

static const char tail[] =
    "\n"
    "## Bounds\n"
    "\n"
    "| what | at most |\n"
    "|---|---|\n"
    "| constraint | 64 KiB |\n"
    "| schema | 64 levels, 20,000 combinations of subschemas |\n"
    "| all patterns that apply to one string, together | 8,192 states |\n"
    "| automaton | 400,000 nodes and 20,000 rules; no rule may begin with itself |\n"
    "| memory on a machine | 48 MiB for a constraint, 256 MiB for all, 192 MiB for all that are "
    "larger than 1 MiB |\n"
    "| time to find which tokens may follow | about 0.1 s for a token; in the mean 2 ms, after the "
    "first 0.25 s |\n"
    "\n"
    "An ambiguous constraint may need more: its answer then ends with an error.\n"
    "\n"
    "Tested: 1,000 random schemas, one answer of the default model for each (test `schema "
    "answers`, 2026-11-23). 741 answers\n"
    "were valid by Python's jsonschema, 193 were cut by `max_tokens`, none was invalid; 66 "
    "schemas were refused with a\n"
    "reason. 400 constrained streams whose machines died had the same bytes as without deaths "
    "(`constraints, all`).\n"
    "\n"
    "## How it works\n"
    "\n"
    "`model/grammar/` compiles a constraint into a pushdown automaton over bytes. The gateway "
    "compiles the constraint to\n"
    "check it; each machine compiles the constraint again while the prompt waits and is "
    "computed. API keys take turns: a\n"
    "constraint waits for at most one constraint of each other key. A machine that takes over an "
    "answer starts again from the\n"
    "constraint and the delivered tokens, so the bytes do not depend on where an answer moves\n"
    "([figures](performance.md#constrained-answers)).\n"
    "\n"
    "Where only one text can follow (such as the name of a required property), the mask allows "
    "only the longest token of this\n"
    "text. Exception: at the end of the text, where a longer token could follow. On GPUs the "
    "logits of constrained answers\n"
    "are copied to the host. In a machine with stages, the masks of one batch have at most 8 "
    "MiB: 447 constrained answers, if\n"
    "the vocabulary has 150,000 tokens.\n";

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
    fputs("\n| refused | reason, or replacement |\n|---|---|\n", out);
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
