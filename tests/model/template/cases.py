#!/usr/bin/env python3
"""Prints the cases of the test `template`, with what Python's jinja2 makes of them, as lines of JSON:

    pip install jinja2
    python3 tests/model/template/cases.py > tests/data/template_cases.jsonl
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import reference  # noqa: E402

VARIABLES = {
    "text": "Hello, World", "empty": "", "blank": "  a b \n", "umlaut": "Äpfel ÖL straße", "emoji": "a😀b",
    "number": 7, "negative": -3, "half": 2.5, "yes": True, "no": False, "nothing": None,
    "list": [3, 1, 2], "words": ["b", "A", "c"], "nested": [[1, 2], [3, 4]],
    "map": {"b": 1, "a": {"x": [1, None, True]}, "c": "ü\"'\n"}, "users": [
        {"name": "Zoe", "age": 30, "tags": []}, {"name": "Al", "age": 25, "tags": ["x"]}, {"name": "bo", "age": 30}],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
}

EXPRESSIONS = """
1 + 2 * 3 - 4 // 3 % 5
2 ** 3 ** 2
-2 ** 2
- 7 // 2
-7 % 3
7 % -3
7 / 2
1 / 4 + 3
7.5 // 2
-7.5 % 2
1e3
1.5e-7
1_000 + 0x1f + 0o17 + 0b11
100000000000000000000.0
1e16
123456789012345.6
0.1 + 0.2
3.0
5 == 5.0
1 < 2 < 3
1 < 3 < 2
2 in [1, 2] and 3 not in [1, 2]
'ell' in text
not no and yes
nothing or 'other'
empty and 'other'
'a' if yes else 'b'
'a' if no
('a' if no else 'b') ~ 1 ~ nothing ~ yes ~ 2.0
'a' 'b' "c"
'\\n\\t\\'\\"\\\\ \\x41 \\u00e4 \\U0001F600 \\101'
"it's"
[1, 'a', "it's", None, true, 2.0, (1,), (), {'k': 'v'}]
(1, 2)
1, 2
{'a': 1, 'b': [1, 2]}.b[1]
{1: 'x', 'y': 2}
{'a': 1}['a'], {'a': 1}.a, {'a': 1}.get('b', 5), {'a': 1}.get('b')
map.a.x[1], map['a']['x'][2]
map.missing
map.missing.more
missing
missing.more
missing is defined, text is defined
text[0], text[-1], text[99]
text[1:4], text[:-2], text[::-1], text[::2], text[-3:], text[10:2]
emoji[1], emoji[::-1], emoji|length
list[1:], list[::-1], list[5:], list[-2:]
(1, 2, 3)[1:]
list + [4]
list * 2
'ab' * 3
3 * 'ab'
'ab' + 1
1 + 'ab'
nothing + 1
[1] + (2,)
1 / 0
1 // 0
1 % 0
text.upper(), text.lower(), text.title(), umlaut.upper(), umlaut.lower(), 'öl'.capitalize(), 'aB'.swapcase()
blank.strip() ~ '|' ~ blank.lstrip() ~ '|' ~ blank.rstrip() ~ '|' ~ 'xxaxx'.strip('x')
'a,b,,c'.split(','), 'a,b,,c'.split(',', 1), ' a  b '.split(), ' a  b c '.split(none, 1), 'a,b,c'.rsplit(',', 1)
'a\\nb\\r\\nc\\n'.splitlines()
'a\\nb\\n'.splitlines(true)
text.startswith('Hell'), text.endswith(('x', 'World')), text.startswith('x')
text.replace('l', 'L'), text.replace('l', 'L', 1), 'ab'.replace('', '-')
text.find('o'), text.rfind('o'), text.find('zz'), text.index('W'), text.count('l')
text.index('zz')
', '.join(['a', 'b']), ''.join([])
', '.join([1])
'a{}b{}'.format(1, 'x'), '{1}{0}'.format(1, 2), '{a}'.format(a=5), '{{}}'.format()
'%s-%d-%5.2f-%x-%r-%%' % ('a', 5, 2.345, 255, 'q')
'%s' % 5
'%(a)s' % {'a': 1}
'%5s|%-5s|%05d|%+d' % ('a', 'b', 42, 7)
('%9999d' % 1)|length, ('%-2000.3f' % 1)|length
'%s' % (1, 2)
'12'.isdigit(), 'a1'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' \\t'.isspace(), 'AB'.isupper(), 'ab1'.islower()
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), 'x'.zfill(3), '-5'.zfill(4)
'a'.ljust(3) ~ '|', 'a'.rjust(3, '.'), 'ab'.center(5, '*'), 'abc'.center(6)
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-')
map.items()|list
map.keys()|list, map.values()|list
map.keys()
[1, 2, 1].count(1), [1, 2].index(2)
list.append(4)
map.update({'x': 1})
map.pop('a')
text.__class__
text.__class__.__mro__
''.__class__.__subclasses__()
number is number, half is number, yes is number, text is number
number is integer, yes is integer, half is float, number is float
text is string, number is string, map is mapping, list is mapping
list is sequence, text is sequence, map is sequence, number is sequence, missing is sequence
list is iterable, number is iterable, nothing is iterable, map.items() is iterable
nothing is none, no is none, missing is none
yes is true, 1 is true, no is false, 0 is false, yes is boolean
4 is even, 3 is odd, 9 is divisibleby 3, 9 is divisibleby(4)
1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is ge 2, 1 is sameas 1, 'a' is in ['a']
number is not none, text is not string
'abc' is lower, 'ABC' is upper
range is callable, text is callable
'upper' is filter, 'nope' is filter, 'odd' is test
text is nope
text|nope
missing|upper
missing|length
text|upper|lower|title
'hello wORLD-foo (bar)'|title
text|capitalize
blank|trim ~ '|'
'xax'|trim('x')
text|length, list|count, map|length
number|length
missing|default('d'), empty|default('d'), empty|default('d', true), nothing|d('x')
list|first, list|last, [] |first, text|first
list|join(', '), words|join, users|join(', ', attribute='name')
list|sort, words|sort, words|sort(case_sensitive=true), list|sort(reverse=true), users|sort(attribute='age')|map(attribute='name')|list
[1, 'a']|sort
list|min, list|max, words|min, users|max(attribute='age')
list|sum, users|sum(attribute='age'), list|sum(start=10)
list|reverse|list, text|reverse
[1, 2, 1, 'A', 'a']|unique|list
list|map('string')|list, words|map('upper')|join(','), users|map(attribute='name')|list, users|map(attribute='x', default='-')|list
users|map(attribute='tags.0')|list
users|selectattr('tags')|map(attribute='name')|list
users|selectattr('age', 'equalto', 30)|map(attribute='name')|list, users|rejectattr('age', 'gt', 26)|map(attribute='name')|list
users|selectattr('tags', 'defined')|list|length
list|select('odd')|list, list|reject('odd')|list, list|select('>', 1)|list, ['', 'a']|select|list
nothing|select('odd')|list
5|select|list
users|groupby('age')|list
list|batch(2)|list, list|batch(2, 0)|list, list|slice(2)|list
map|dictsort
map|items|list
missing|items|list
'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2, true), 'a\\n\\nb'|indent(2, blank=true), 'a\\nb'|indent('> ')
'a long text of many words'|truncate(12), 'a long text'|truncate(7, true, '!', 0), 'short'|truncate(3)
'3'|int, '3.7'|int, 'x'|int, 'x'|int(5), 3.9|int, '0x1f'|int(base=16), '1_0'|int
'3.5'|float, 'x'|float, 'x'|float(1.5), 3|float
missing|int
2.567|round, 2.567|round(2), 2.5|round, 3.5|round, 2.1|round(0, 'ceil'), 2.9|round(method='floor'), 7|round
-5|abs, -2.5|abs
'x'|abs
'<a href="x">\\'&'|e, '<b>'|safe ~ '<i>', '<b>'|e + '<i>', ('<b>'|safe) + '<i>'
text|replace('l', 'L'), text|replace('l', 'L', 1), 5|replace(5, 6)
'%s and %s'|format(1, 2)
text|center(20) ~ '|'
text|wordcount
'a b/ü?'|urlencode
text|list
users[0]|attr('name'), text|attr('upper') is callable
text|string, 5|string, nothing|string, [1]|string
map|tojson
map|tojson(indent=2)
map|tojson(indent=0)
map|tojson(ensure_ascii=true)
map|tojson(separators=(',', ':'))
map|tojson(sort_keys=true)
[]|tojson(indent=4), {}|tojson(indent=4), [[], {}]|tojson(indent=1)
[1.0, 1e20, 1e-7, 2, true, none, 'a/b', '\\u0001\\u007f\\u2028😀']|tojson
'😀ä'|tojson(true)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
missing|tojson
range(3)|tojson
(1, 2)|tojson
range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(3)|length
range(3)
range(0, 10, 2), range(0, 9, 2), range(5, 0, -2), range(4, 4), range(5, 2)
range(10)[2:5], range(10)[::-1], range(0, 10, 2)[1:4:2], range(3)[2:1]
range(0)|list
dict(a=1, b=2), dict([('x', 1)]), dict({'y': 1}, z=2)
namespace(a=1).a
raise_exception('no ' ~ text)
strftime_now('%d %b %Y %H:%M')
joiner('|')() ~ 'x'
cycler('a', 'b').next()
list.0
[1,2,]
(1,)
{'a': 1,}
None is none, True, False
nothing.x
nothing['x']
number.x.y
'a' < 'b', [1, 2] < [1, 3], 'a' < 'B'
1 < 'a'
[1] == [1.0], (1,) == [1], {'a': 1} == {'a': 1}, 'a' == 1
{'a': 1} < {'b': 1}
{[1]: 2}
text not in words
1 in 5
3 in range(5), 'a' in map
+5, -half, -yes
-'a'
not missing
text ~ missing ~ 1
'a' if missing else 'b'
text | upper ~ text | lower
(text | upper)[0]
text.split(', ')[1][0:2]
[1, 2, 3][1:][0]
'x' * -1 ~ '|'
'abc'[1:2:1], 'abc'[3:0:-1]
'abc'[::0]
[[]] * 2
10 ** 3, 2 ** -1, 2 ** 0.5
number > 5 and number < 10 or false
'%d' % 3.7
'%c' % 'x'
'ß'.upper()
"\\q"
4 is divisibleby 2 and 3 is odd
text is string and not text is number
'x' is in 'xyz', 'x' is not in 'xyz'
users|map(attribute='name')|map('lower')|sort|join(' ')
users|selectattr('name', 'in', ['Al', 'bo'])|map(attribute='age')|list
(users|first).name
users[-1].name
users|length > 2
map|length is eq 3
"{% raw %}"
'a' =~ 'b'
1 +
(1
[1, 2
{'a'}
text..x
""".strip("\n").split("\n")

TEMPLATES = [
    "plain text\n", "a\n\n", "{{ 1 }}\n{{ 2 }}\n", "  {% if true %}  \n a\n  {% endif %}  \nb",
    "x {%- if true -%}  \n a \n {%- endif -%} \n y", "{{- ' a ' -}}  b", "a {{+ 1 }}", "a {%+ if true %}b{% endif +%}\nc",
    "{# comment #}\na{#- b -#} c\n  {# d #}\ne", "{# {{ #}x", "{#-#}x", "a{% raw %}{{ x }}{% y %}{% endraw %}b",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  b", "\t{% set a = 1 %}\n{{ a }}", "a\r\nb\r{{ 1 }}\r\n",
    "{% for i in list %}{{ i }},{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in list if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for a, b in nested %}{{ a }}-{{ b }};{% endfor %}", "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in map %}{{ k }}{% endfor %}", "{% for c in emoji %}[{{ c }}]{% endfor %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for i in list %}{% for j in list %}{{ loop.depth }}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}",
    "{% for i in list %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}|{{ i }}",
    "{% for n in nested recursive %}{% if n is sequence %}({{ loop(n) }}){% else %}{{ n }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in list %}{% if loop.first %}{% set y = i %}{% endif %}{{ y }}|{% endfor %}",
    "{% set ns = namespace(x=1, l=[]) %}{% for i in list %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}",
    "{% set map.b = 2 %}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a, b = [1, 2, 3] %}", "{% set (a, b) = (1, 2) %}{{ a }}",
    "{% set a = 1, 2 %}{{ a }}", "{% set body %}x {{ 1 + 1 }}\n{% endset %}[{{ body }}]", "{% set b | upper %}x{% endset %}{{ b }}",
    "{% filter upper %}a{{ text }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=1, a=2) }}|{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m.name }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{{ text }}{% endcall %}",
    "{% macro m(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) m(list) %}<{{ i }}>{% endcall %}",
    "{% macro outer() %}{% set z = 5 %}{{ inner() }}{% endmacro %}{% macro inner() %}{{ z }}{% endmacro %}{{ outer() }}|",
    "{% set z = 1 %}{% macro m() %}{{ z }}{% endmacro %}{% set z = 2 %}{{ m() }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% generation %}a{% set g = 1 %}{% endgeneration %}{{ g }}|", "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif nothing %}b{% else %}c{% endif %}", "{% if missing is defined and missing.x %}a{% endif %}b",
    "{% if 1 %}", "{% endif %}", "{% for %}", "{% for i in %}{% endfor %}", "{% nope %}", "{{ 1", "{% if true", "{# open", "{{ 'open }}",
    "{{ 1 }} }}", "{{ }}", "{% set %}", "{% set x %}", "{{ (1, 2 }}", "{{ 1 2 }}", "{% else %}", "{% raw %}x", "{{ ' }}' }}", "{{ {'a': {'b': 1}} }}",
    "{{ '{%' }}{{ '%}' }}", "{%if yes%}a{%endif%}", "{%- set a = 1 -%}\n\n{%- if a == 1 -%}\n  x  \n{%- endif %}\ny",
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m['content'] }}\n{% endfor %}{% if add_generation_prompt %}g{% endif %}",
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}{% endfor %}ok",
    "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}{{ messages[-1]['role'] }}{{ messages[1:] | length }}",
    "{% set messages = messages[1:] %}{{ messages }}", "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=4) }}\n",
    "{% set j = joiner(', ') %}{% for i in list %}{{ j() }}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}",
    "{% block b %}x{% endblock %}y", "{% print 1 %}", "{% set x = {'a': 1} %}{% do x.update(b=2) %}", "{% include 'x' %}", "{% extends 'x' %}",
    "{% for i in 5 %}{% endfor %}", "{% for i in missing %}x{% else %}e{% endfor %}", "{% for i in nothing %}x{% endfor %}",
    "{% for a, b in list %}{% endfor %}", "{% for loop in list %}{% endfor %}", "{% for i in list %}{{ loop.nope }}|{% endfor %}",
    "{% set ns = namespace() %}{% set ns.a = [] %}{% set ns.a = ns.a + ['x'] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% for i in list %}{% set loop.index = 3 %}{% endfor %}", "{%\n set a = 1\n%}\n{{\n a\n}}", "{{ list\n | join(',\n') }}",
    "  {%- set x = 1 %}\n  {{- x }}\n  {%- for i in [1] %}\n  {{ i }}\n  {%- endfor %}\n", "{% set x = 'a' %}{% set x = x ~ x %}{% set x = x + x %}{{ x }}",
    "{% macro a(x) -%}\n  {{ x }}\n{%- endmacro -%}\n{{ a(1) }}\n", "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}",
    "{% set f = 'upper' %}{{ text | map(f) | join }}", "{{ [1, 2, 3] | map('float') | sum }}", "{{ users | map(attribute='name') }}x"[:0] + "{{ 5 }}",
    "{% for u in users | sort(attribute='name') %}{{ u.name }}{% endfor %}", "{% for x, y in {'a': 1}|dictsort %}{{ x }}{{ y }}{% endfor %}",
    "{% set a = [1] %}{% set b = a %}{% set b = b + [2] %}{{ a }}{{ b }}", "{{ *list }}", "{{ range(*[1, 3]) | list }}{{ dict(**{'a': 1}) }}",
    "line 1\nline 2 {{ missing.x }}", "\n\n{{ 1 / 0 }}", "{% if true %}\n\n{{ raise_exception('bad') }}{% endif %}",
]


def main():
    templates = ["{{ " + expression + " }}" for expression in EXPRESSIONS] + TEMPLATES
    for template in templates:
        text, error = reference.render(template, VARIABLES)
        print(json.dumps({"template": template, **({"text": text} if error is None else {"error": error})}))


if __name__ == "__main__":
    print(json.dumps({"variables": VARIABLES, "now": reference.NOW}))
    main()
