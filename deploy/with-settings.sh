#!/bin/sh
# Run a command on a plain machine as the units of deploy/systemd/ run theirs: with their settings, as their user.
#   sudo deploy/with-settings.sh tidemark doctor
# The file of settings is for systemd and containers. No shell can source it: `&` in an address would end a command there.
# Variables: SETTINGS_FILE (default /etc/tidemark/environment), SETTINGS_USER (default tidemark, if root calls),
# TIDEMARK_PROJECT (default /opt/tidemark/project; another checkout for `tidemark plan`).
set -eu
file="${SETTINGS_FILE:-/etc/tidemark/environment}"
[ "$#" -gt 0 ] || { echo "expected a command, such as: $0 tidemark doctor" >&2; exit 2; }
[ -r "$file" ] || { echo "$file cannot be read: call this as root, or set SETTINGS_FILE" >&2; exit 2; }

while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in "" | "#"*) continue ;; esac
    value="${line#*=}"
    case "$value" in
    \'*\') value="${value#\'}" value="${value%\'}" ;;
    \"*\") value="${value#\"}" value="${value%\"}" ;;
    esac
    export "${line%%=*}=$value"
done <"$file"
export DAGSTER_HOME=/etc/tidemark/dagster TIDEMARK_STATE_DIR=/var/lib/tidemark CODE_SERVER_HOST=127.0.0.1
export TIDEMARK_PROJECT="${TIDEMARK_PROJECT:-/opt/tidemark/project}" PATH="/opt/tidemark/venv/bin:$PATH"
[ "$(id -u)" != 0 ] || exec runuser --user "${SETTINGS_USER:-tidemark}" -- "$@"
exec "$@"
