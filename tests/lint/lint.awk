# The scan behind tests/lint.sh: reads rules.txt, exceptions.txt, then every
# source file; prints violations as "path:line: what", long files and
# functions, and the counts.  POSIX awk; -v root=PREFIX is cut from the paths.
# Comments and the contents of literals are blanked before names are looked at.

function starts(s, prefix) { return substr(s, 1, length(prefix)) == prefix }
function ends(s, suffix) { return length(s) >= length(suffix) && substr(s, length(s) - length(suffix) + 1) == suffix }

function bad(line, what) {
    printf "%s:%d: %s\n", path, line, what
    n_bad++
}

# True if the file at hand is in the blank-separated list of path prefixes.
function in_list(list,    part, n, i) {
    n = split(list, part, " ")
    for (i = 1; i <= n; i++)
        if (starts(path, part[i])) return 1
    return 0
}

function may_include(row, what,    part, n, i, ok) {
    n = split(row, part, " ")
    for (i = 1; i <= n; i++) {
        if (starts(part[i], "!") && starts(what, substr(part[i], 2))) return 0
        if (starts(part[i], "*") ? ends(what, substr(part[i], 2)) : starts(what, part[i])) ok = 1
    }
    return ok
}

function read_rule(    rest) {
    sub(/#.*/, "")
    if (NF < 3) {
        if (NF > 0) { printf "%s:%d: a rule of fewer than 3 words\n", FILENAME, FNR; n_bad++ }
        return
    }
    rest = $3
    for (i = 4; i <= NF; i++) rest = rest " " $i
    if ($1 == "include") law[$2] = rest
    else if ($1 == "header") header[$2] = rest
    else if ($1 == "call") { names[$2] = rest; call_only[$2] = 1 }
    else if ($1 == "name") names[$2] = rest
    else { printf "%s:%d: unknown kind of rule %s\n", FILENAME, FNR, $1; n_bad++ }
    n_rules++
}

function read_exception() {
    sub(/#.*/, "")
    if (NF == 0) return
    if (NF < 3) { printf "%s:%d: an exception without a reason\n", FILENAME, FNR; n_bad++; return }
    excused[$1 " " $2] = 1
}

# The line without comments, literals emptied; in_comment lives across lines.
function strip(s,    out, c, two, i, n, quote) {
    n = length(s)
    if (!in_comment && !index(s, "/") && !index(s, "\"") && !index(s, "'")) return s
    for (i = 1; i <= n; i++) {
        c = substr(s, i, 1)
        two = substr(s, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (two == "/*") { in_comment = 1; i++; out = out " " }
        else if (two == "//") break
        else { if (c == "\"" || c == "'") quote = c; out = out c }
    }
    return out
}

function check_include(s,    what, own, key, best) {
    if (!match(s, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*/)) return
    what = substr(s, RSTART, RLENGTH)
    own = index(what, "\"") > 0
    sub(/^[^"<]*["<]/, "", what)
    n_includes++
    for (key in header)
        if (starts(what, key) && !in_list(header[key])) bad(FNR, "<" what "> belongs to " header[key])
    if (!own && what != "forge.h") return
    if (what == "config.h") return
    best = ""
    for (key in law)
        if (starts(path, key) && length(key) > length(best)) best = key
    if (best != "" && !may_include(law[best], what)) bad(FNR, "includes \"" what "\"; allowed here: " law[best])
}

function check_names(s,    word, before, after, base) {
    base = s
    while (match(base, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(base, RSTART, RLENGTH)
        before = RSTART > 1 ? substr(base, RSTART - 1, 1) : " "
        base = substr(base, RSTART + RLENGTH)
        if (!(word in names) || before == "." || before == ">") continue
        after = base
        sub(/^[ \t]+/, "", after)
        if ((word in call_only) && substr(after, 1, 1) != "(") continue
        if (!in_list(names[word])) bad(FNR, word (word in call_only ? "()" : "") " is not for this file")
    }
}

# Name of the function whose signature was seen last.
function signature(s,    name) {
    if (s !~ /^[A-Za-z_]/ || !index(s, "(") || s ~ /^#/) return
    gsub(/__attribute__ *\(\([^)]*\)*\)\)/, "", s)
    if (!match(s, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) return
    name = substr(s, RSTART, RLENGTH)
    sub(/[ \t]*\($/, "", name)
    func_name = name
}

function end_file() {
    if (path == "") return
    if (header_lines < 3) bad(1, "opens with " header_lines " lines of comment, 3 are needed")
    if (last_line > 800) {
        printf "long file: %s, %d lines%s\n", path, last_line, (path " file") in excused ? " (excused)" : ""
        used[path " file"] = 1
        if (!((path " file") in excused)) bad(last_line, "over 800 lines and not in tests/lint/exceptions.txt")
    }
}

FNR == 1 && FILENAME != current {
    end_file()
    current = FILENAME
    seen[FILENAME] = 1
    kind = FILENAME ~ /rules\.txt$/ ? "rules" : FILENAME ~ /exceptions\.txt$/ ? "exceptions" : "source"
    path = ""
    if (kind == "source") {
        path = substr(FILENAME, length(root) + 2)
        n_files++
        in_comment = 0
        header_lines = 0
        header_open = $0 ~ /^\/\*/
        func_start = 0
        func_name = "?"
    }
}
kind == "rules" { read_rule(); next }
kind == "exceptions" { read_exception(); next }
{
    last_line = FNR
    if (header_open) {
        header_lines++
        if (index($0, "*/")) header_open = 0
    }
    check_include($0)
    code = strip($0)
    if (code ~ /^[ \t]*$/) next
    check_names(code)
    if (code ~ /^\{/) func_start = FNR
    else if (code ~ /^\}/ && func_start) {
        n_functions++
        if (FNR - func_start + 1 > 100) {
            key = path " " func_name
            printf "long function: %s:%d: %s, %d lines%s\n", path, func_start, func_name, FNR - func_start + 1, \
                key in excused ? " (excused)" : ""
            used[key] = 1
            if (!(key in excused)) bad(func_start, func_name " is over 100 lines and not in tests/lint/exceptions.txt")
        }
        func_start = 0
    } else if (!func_start) signature(code)
}
END {
    end_file()
    for (i = 1; i < ARGC; i++) # awk never opens a record of an empty file
        if (starts(ARGV[i], root "/") && !(ARGV[i] in seen) && ARGV[i] !~ /\.txt$/) {
            path = substr(ARGV[i], length(root) + 2)
            bad(1, "is empty")
        }
    for (key in excused)
        if (!(key in used)) printf "no longer needed in exceptions.txt: %s\n", key
    printf "lint: %d files, %d includes, %d functions against %d rules: %d violations\n", \
        n_files, n_includes, n_functions, n_rules, n_bad
    exit n_bad > 0 || n_files == 0 || n_rules == 0
}
