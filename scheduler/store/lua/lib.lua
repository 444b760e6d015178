-- Shared by every script: CMake puts this text between a script's first line and its body.
-- KEYS[1] = prefix of the shard. ARGV[1] = clock in ms, 0 = the server's own; anything else only in tests (cfg.testclock).
-- A job is read whole into a table of strings `j`; put() keeps table and hash alike.
-- Numbers leave Lua through fmt() or fmt6() only: Lua's own conversion keeps 14 digits (jobs.md §3, trap 4).
local P, call = KEYS[1], redis.call
local CFG, DAY_MS, MAX_POOLS = P .. 'cfg', 86400000, 32

local function fmt(n) return string.format('%.0f', n) end
local function fmt6(n) return string.format('%.6f', n) end
local function num(s) return tonumber(s) or 0 end

local now
if ARGV[1] == '0' then
  local t = call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
elseif call('HGET', CFG, 'testclock') == '1' and tonumber(ARGV[1]) then
  now = tonumber(ARGV[1])
else
  return {'BADCLOCK'}
end

local cursor = 1
local function arg()  -- the next argument after the clock
  cursor = cursor + 1
  return ARGV[cursor]
end

-- Records ------------------------------------------------------------------------------------------------------------

local function record(key)
  local raw = call('HGETALL', key)
  if #raw == 0 then return nil end
  local r = {}
  for i = 1, #raw, 2 do r[raw[i]] = raw[i + 1] end
  return r
end

local function job(id) return record(P .. 'job:' .. id) end

local function put(j, ...)
  local pairs_ = {...}
  for i = 1, #pairs_, 2 do j[pairs_[i]] = pairs_[i + 1] end
  call('HSET', P .. 'job:' .. j.id, unpack(pairs_))
end

local function add(j, field, by) put(j, field, fmt(num(j[field]) + by)) end

local function drop(j, ...)
  for _, field in ipairs({...}) do j[field] = nil end
  call('HDEL', P .. 'job:' .. j.id, ...)
end

-- Requests -----------------------------------------------------------------------------------------------------------
-- A mutating call is known by its tenant's request_id for a time (api.md §1). Its script asks done_by() before it looks at
-- anything else, so that a repeat gets the first answer whatever has happened since, and calls remember() with its change.
-- An empty request_id is not kept.

-- The reply to a call that was made before: DUP ids… or, when it came with another body, CONFLICT ids…; nil: it is new.
local function done_by(t, request_id, sha)
  local made = call('HMGET', P .. 'idem:' .. t .. ':' .. request_id, 'sha', 'ids')
  if not made[1] then return nil end
  local reply = {made[1] == sha and 'DUP' or 'CONFLICT'}
  for id in string.gmatch(made[2], '%S+') do reply[#reply + 1] = id end
  return reply
end

local function remember(t, request_id, sha, ttl, ids)
  if request_id == '' then return end
  local key = P .. 'idem:' .. t .. ':' .. request_id
  call('HSET', key, 'sha', sha, 'ids', ids)
  call('PEXPIRE', key, ttl)
end

-- Pages --------------------------------------------------------------------------------------------------------------

-- A page of an index, lowest score first: at most `count` rows {member, score} after (ms, id), the last row of the page before;
-- ms '' = from the start. Nothing is skipped, whatever comes in or goes meanwhile.
local function page_after(key, ms, id, count)
  local rows, offset = {}, 0
  while #rows < count do
    local found = call('ZRANGEBYSCORE', key, ms == '' and '-inf' or ms, '+inf', 'WITHSCORES', 'LIMIT', fmt(offset), '100')
    if #found == 0 then break end
    for i = 1, #found, 2 do
      local seen = ms ~= '' and num(found[i + 1]) == num(ms) and found[i] <= id
      if not seen and #rows < count then rows[#rows + 1] = {found[i], fmt(num(found[i + 1]))} end
    end
    offset = offset + 100
  end
  return rows
end

-- Tenants ------------------------------------------------------------------------------------------------------------

local function tenant(t)
  local r = call('HMGET', P .. 'tenant:' .. t, 'weight', 'max_queued', 'max_running', 'gpu_max_day', 'gpu_day', 'gpu_used')
  local today = math.floor(now / DAY_MS)
  return {
    weight = tonumber(r[1]) or 1, max_queued = tonumber(r[2]) or 20, max_running = tonumber(r[3]) or 2,
    gpu_max_day = num(r[4]), today = today, gpu_used = (num(r[5]) == today) and num(r[6]) or 0,
  }
end

local function queued(t) return call('ZCARD', P .. 'twait:' .. t) end
local function running(t) return call('ZCARD', P .. 'trun:' .. t) end

-- The only code that touches a ring: a tenant is in it exactly while it may be served (jobs.md §5).
local function ring_sync(t, pool)
  local ring, limits = P .. 'ring:' .. pool, tenant(t)
  local waiting = call('ZCARD', P .. 'rq:' .. pool .. ':' .. t) > 0
  local spent = limits.gpu_max_day > 0 and limits.gpu_used >= limits.gpu_max_day
  if waiting and spent then
    call('ZADD', P .. 'capped', fmt((limits.today + 1) * DAY_MS), t)
  end
  local present = call('ZSCORE', ring, t)
  if waiting and not spent and running(t) < limits.max_running then
    if present then return true end
    local own = num(call('HGET', P .. 'tenant:' .. t, 'vt:' .. pool))
    -- Never below where the last one was served: the first in the ring may wait there for a worker that is busy, far behind those
    -- whose workers are not, and whoever came in at its place would be paid for its waiting.
    local first = call('ZRANGE', ring, 0, 0, 'WITHSCORES')
    local floor = math.max(num(first[2]), num(call('HGET', CFG, 'vt:' .. pool)))
    local start = fmt6(math.max(own, floor))
    call('HSET', P .. 'tenant:' .. t, 'vt:' .. pool, start)
    call('ZADD', ring, start, t)
    return true
  end
  if present then call('ZREM', ring, t) end
  return false
end

-- A tenant of the ring that nobody present can serve keeps up with those who are served: it has its turn once a worker for its
-- jobs comes, and no back pay for the time before.
local function keep_up(t, pool, vt)
  if num(call('HGET', P .. 'tenant:' .. t, 'vt:' .. pool)) >= vt then return end
  call('HSET', P .. 'tenant:' .. t, 'vt:' .. pool, fmt6(vt))
  call('ZADD', P .. 'ring:' .. pool, fmt6(vt), t)
end

local function ring_sync_all(t)
  for _, pool in ipairs(call('SMEMBERS', P .. 'pools')) do ring_sync(t, pool) end
end

-- Adds GPU-seconds to a tenant's virtual time in a pool and to its day. When the day is used up by that, or has room again, the
-- tenant's place changes in every pool.
local function charge(t, pool, amount)
  local limits = tenant(t)
  local key, field = P .. 'tenant:' .. t, 'vt:' .. pool
  local vt = fmt6(num(call('HGET', key, field)) + amount / limits.weight)
  local used = fmt6(math.max(0, limits.gpu_used + amount))
  call('HSET', key, field, vt, 'gpu_day', fmt(limits.today), 'gpu_used', used)
  if call('ZSCORE', P .. 'ring:' .. pool, t) then call('ZADD', P .. 'ring:' .. pool, vt, t) end
  local most = limits.gpu_max_day
  if most > 0 and (num(used) >= most) ~= (limits.gpu_used >= most) then ring_sync_all(t) end
end

-- States -------------------------------------------------------------------------------------------------------------

local SETS = {
  DELAYED = {'delayed', 'twait'}, READY = {'ready', 'rq', 'inflight', 'twait'},
  RUNNING = {'lease', 'inflight', 'trun'}, CANCELLING = {'lease', 'inflight', 'trun'},
  PAUSED = {'paused', 'twait'},
  SUCCEEDED = {'done'}, FAILED = {'done', 'dead'}, CANCELLED = {'done'},
}
local TERMINAL = {SUCCEEDED = true, FAILED = true, CANCELLED = true}

local function set_key(set, j)
  if set == 'ready' or set == 'inflight' then return P .. set .. ':' .. j.pool end
  if set == 'rq' then return P .. 'rq:' .. j.pool .. ':' .. j.tenant end
  if set == 'twait' or set == 'trun' or set == 'tjobs' then return P .. set .. ':' .. j.tenant end
  return P .. set
end

local function set_score(set, j)
  if set == 'delayed' then return j.due_ms end
  if set == 'lease' then return j.lease_ms end
  if set == 'deadline' then return j.deadline_ms end
  if set == 'done' or set == 'dead' then return j.finished_ms end
  if set == 'ready' or set == 'rq' then
    local boost = tonumber(call('HGET', CFG, 'prio_boost_ms')) or 600000
    return fmt(num(j.enter_ms) - num(j.prio) * boost)
  end
  return j.enter_ms
end

local function leave(j)
  for _, set in ipairs(SETS[j.state]) do call('ZREM', set_key(set, j), j.id) end
end

-- Whether a job is to be in the set. `state` is the truth; the sets follow it.
local function belongs(j, set)
  if set == 'deadline' then
    return num(j.deadline_ms) > 0 and not TERMINAL[j.state] and j.state ~= 'CANCELLING'
  end
  for _, own in ipairs(SETS[j.state] or {}) do
    if own == set then return true end
  end
  return false
end

-- The job behind a member of `delayed`, `lease` or `deadline` whose score is at most `last`. nil: its job is gone, in another
-- state or not due by its own account. Such a member is taken out or gets its score, so that nobody meets it again.
local function due(set, id, last)
  local j = job(id)
  if not j or not belongs(j, set) then
    call('ZREM', P .. set, id)
    return nil
  end
  local score = set_score(set, j)
  if num(score) <= last then return j end
  call('ZADD', P .. set, score, id)
  return nil
end

-- What the state needs (due_ms, lease_ms, enter_ms, finished_ms) must be put before.
local function enter(j, state)
  put(j, 'state', state, 'state_ms', fmt(now), 'rev', fmt(num(j.rev) + 1))
  for _, set in ipairs(SETS[state]) do call('ZADD', set_key(set, j), set_score(set, j), j.id) end
end

-- Audit and test oracle: epoch and worker as they were presented, not as stored (trap 6).
local function event(j, epoch, worker, why)
  local trim = tonumber(call('HGET', CFG, 'events_max')) or 100000
  local entry = {'job', j.id, 'state', j.state, 'epoch', epoch or '', 'worker', worker or '',
                 'ms', fmt(now), 'why', why or ''}
  if trim > 0 then
    call('XADD', P .. 'events', 'MAXLEN', '~', fmt(trim), '*', unpack(entry))
  else
    call('XADD', P .. 'events', '*', unpack(entry))
  end
end

-- One entry of the job's own log; `ms` 0 = now, `data` is opaque.
local function log(j, ms, level, kind, message, data)
  add(j, 'seq', 1)
  if num(ms) == 0 then ms = fmt(now) end
  call('XADD', P .. 'log:' .. j.id, 'MAXLEN', '~', '8000', j.seq .. '-0', 'ms', ms, 'level', level,
       'type', kind, 'message', message, 'attempt', j.attempt, 'data', data or '')
end

-- Events that a worker sends: count, then ms, level, type, message, data of each. read_events checks, write_events writes.
-- A worker may send 128 of 32 KiB together; the bound here leaves room for what their parts cost apart.
local function read_events()
  local n, events, bytes = num(arg()), {}, 0
  if n > 128 then return nil end
  for i = 1, n do
    local e = {arg(), arg(), arg(), arg(), arg()}
    for k = 1, 5 do
      if not e[k] then return nil end
      bytes = bytes + #e[k]
    end
    events[i] = e
  end
  return bytes <= 65536 and events or nil
end

local function write_events(j, events)
  for _, e in ipairs(events) do log(j, e[1], e[2], e[3], e[4], e[5]) end
end

local function owned(j, worker, epoch)
  return j and (j.state == 'RUNNING' or j.state == 'CANCELLING') and j.epoch == epoch and j.worker == worker
end

-- Adds to what a tenant has used today (usage.lua).
local function count_use(t, what, amount)
  if amount <= 0 then return end
  local key = P .. 'usage:' .. t .. ':' .. fmt(math.floor(now / DAY_MS))
  call('HINCRBYFLOAT', key, what, fmt6(amount))
  call('PEXPIRE', key, fmt(401 * DAY_MS))
end

-- Leaves the running state: what was charged becomes what was used; the caller enters the next state, then calls synced().
local function end_attempt(j)
  local used = num(j.gpus) * math.max(0, now - num(j.started_ms)) / 1000
  j.was_full = running(j.tenant) >= tenant(j.tenant).max_running
  leave(j)
  charge(j.tenant, j.pool, used - num(j.charged))
  count_use(j.tenant, 'device_seconds', used)
  drop(j, 'worker', 'lease_ms', 'charged', 'phase', 'beat_seq', 'ckreq_seq')
end

-- The checkpoint that an attempt offers becomes the job's pointer. If the worker has heard of one that a user asked for
-- (`ckreq`, since the beat `ckreq_seq`), the first new one is the answer: it goes to `ckpts` as ms, step, SHA-256, URI. Only one
-- with the training's state (`of_training` 1) is: what is kept while gates are measured has none.
local function point_to(j, uri, sha, step, of_training)
  if uri == '' then return end
  if j.ckreq and j.ckreq_seq and uri ~= j.ckpt_uri and of_training == '1' then
    local key, oldest, oldest_ms = P .. 'ckpts:' .. j.id, nil, math.huge
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local ms = num(string.match(all[i + 1], '^[0-9]+'))
      if ms < oldest_ms then oldest, oldest_ms = all[i], ms end
    end
    if #all >= 128 then call('HDEL', key, oldest) end  -- 64 are kept
    call('HSET', key, j.ckreq, fmt(now) .. '\n' .. step .. '\n' .. sha .. '\n' .. uri)
    drop(j, 'ckreq', 'ckreq_seq')
  end
  put(j, 'ckpt_uri', uri, 'ckpt_sha', sha, 'ckpt_step', step)
end

-- After a change of a tenant's sets. Other pools need a look only if the tenant was at its limit (trap 9).
local function synced(j)
  if j.was_full then ring_sync_all(j.tenant) else ring_sync(j.tenant, j.pool) end
end

-- READY, DELAYED or, if a pause waits, PAUSED; answers the state.
local function requeue(j, delay)
  if j.want == 'pause' then
    put(j, 'want', 'run', 'pause_reason', 'USER')
    enter(j, 'PAUSED')
  elseif delay > 0 then
    put(j, 'due_ms', fmt(now + delay))
    enter(j, 'DELAYED')
  else
    enter(j, 'READY')
  end
  return j.state
end

-- Adapters that a live job needs (`uses`) are held like its files: nobody deletes one that stands in an `adapteruse:<adapter>`.
-- The first of them that is not this tenant's, or not there; nil: none.
local function lacking_adapter(t, uses)
  for adapter in string.gmatch(uses, '%S+') do
    if call('HGET', P .. 'adapter:' .. adapter, 'tenant') ~= t then return adapter end
  end
  return nil
end

local function hold_adapters(j, uses)
  put(j, 'uses', uses)
  for adapter in string.gmatch(uses, '%S+') do call('ZADD', P .. 'adapteruse:' .. adapter, fmt(now), j.id) end
end

-- Frees everything that only a live job may hold, then enters the terminal state.
local function terminal(j, state)
  call('ZREM', P .. 'deadline', j.id)
  for file in string.gmatch(j.files, '%S+') do call('ZREM', P .. 'fileuse:' .. file, j.id) end
  for adapter in string.gmatch(j.uses or '', '%S+') do call('ZREM', P .. 'adapteruse:' .. adapter, j.id) end
  if j.uniq ~= '' and call('GET', P .. 'uniq:' .. j.tenant .. ':' .. j.uniq) == j.id then
    call('DEL', P .. 'uniq:' .. j.tenant .. ':' .. j.uniq)
  end
  if j.ckreq then drop(j, 'ckreq') end  -- nobody is left to answer it
  put(j, 'finished_ms', fmt(now))
  enter(j, state)
end

local FACES = {  -- which event a public end shows as
  CANCELLED = {'INFO', 'job_cancelled', 'The job was cancelled.'},
  SUCCEEDED = {'INFO', 'job_complete', 'The job succeeded.'},
}
local USER_CODES = {
  invalid_training_file = true, invalid_hyperparameter = true, non_finite_loss = true, loss_diverged = true,
  base_guard_tripped = true, gate_failed = true, adapter_mismatch = true, invalid_evaluation_file = true,
}

-- The log entry of a terminal state.
local function log_end(j)
  local face = FACES[j.state]
  if j.state == 'CANCELLED' and j.why_code == 'deadline_exceeded' then
    face = {'WARN', 'job_expired', 'The job reached its deadline.'}
  elseif j.state == 'FAILED' then
    face = {'ERROR', USER_CODES[j.why_code] and 'job_user_error' or 'job_error', j.why or ''}
  end
  log(j, '0', face[1], face[2], face[3], j.state == 'SUCCEEDED' and j.adapter or j.why_code)
end

-- The log entry of an attempt that ended without ending the job.
local function log_requeue(j, reason)
  if j.state == 'PAUSED' then
    log(j, '0', 'INFO', 'job_paused', 'Paused: ' .. j.pause_reason .. '.')
  else
    log(j, '0', 'WARN', 'job_restarted', 'Attempt ' .. j.attempt .. ' ended (' .. reason .. '); queued again.',
        reason .. '\n' .. (j.ckpt_step or '0'))
  end
end

-- Crash number n of a job: the first is tried again at once, later ones after base·2^(n-2), at most 10 minutes (jobs.md §6).
local function crash_delay(n, base)
  if n <= 1 then return 0 end
  return math.min(base * 2 ^ (n - 2), 600000)
end

-- A process or worker died under the job: T6 crash, T9.
local function crashed(j, base, reason)
  add(j, 'crashes', 1)
  if num(j.crashes) > num(j.max_crash) then
    put(j, 'why_code', 'poison_job', 'why',
        'The job ended its process or worker ' .. j.crashes .. ' times; the last time: ' .. reason .. '.')
    terminal(j, 'FAILED')
  else
    requeue(j, crash_delay(num(j.crashes), base))
  end
end

-- Stops a job for `code`: waiting jobs end at once (T11), running ones are told to (T12). Answers the state.
local function stop(j, code, text, who)
  put(j, 'why_code', code, 'why', text)
  if j.state == 'RUNNING' then
    call('ZREM', P .. 'deadline', j.id)
    leave(j)
    enter(j, 'CANCELLING')
    event(j, j.epoch, who, code)
  else
    leave(j)
    terminal(j, 'CANCELLED')
    event(j, '', who, code)
    log_end(j)
    ring_sync(j.tenant, j.pool)
  end
  return j.state
end

-- How many ms the job waits that waits longest, of those at the head of a tenant in the ring.
local function oldest_ready(pool)
  local oldest = 0
  for _, t in ipairs(call('ZRANGE', P .. 'ring:' .. pool, 0, 199)) do
    local id = call('ZRANGE', P .. 'rq:' .. pool .. ':' .. t, 0, 0)[1]
    if id then oldest = math.max(oldest, now - num(call('HGET', P .. 'job:' .. id, 'enter_ms'))) end
  end
  return oldest
end

-- The base models that the workers of a pool which take jobs can run together, as a set, and how many such workers there are; nil:
-- any model, since one of them did not say, or there are more workers than a script may look at.
local function present_models(pool)
  local all, workers, ids = {}, 0, call('ZRANGE', P .. 'workers', '0', '999')
  if #ids == 1000 then return nil end
  for _, id in ipairs(ids) do
    local w = call('HMGET', P .. 'worker:' .. id, 'state', 'pools', 'models')
    if w[1] == 'up' and string.find(' ' .. (w[2] or '') .. ' ', ' ' .. pool .. ' ', 1, true) then
      if not w[3] or w[3] == '' then return nil end
      workers = workers + 1
      for name in string.gmatch(w[3], '%S+') do all[name] = true end
    end
  end
  return all, workers
end

local models_of_pool = {}  -- what present_models found, for the next job of a script

-- '1': a READY job waits for its base model; workers are up in its pool, and none has it.
local function lacks_model(id)
  local j = call('HMGET', P .. 'job:' .. id, 'state', 'pool', 'base')
  local pool, base = j[2], j[3]
  if j[1] ~= 'READY' or not base or base == '' then return '0' end
  if not models_of_pool[pool] then
    local models, workers = present_models(pool)
    models_of_pool[pool] = {any = not models or workers == 0, models = models}
  end
  local found = models_of_pool[pool]
  return (found.any or found.models[base]) and '0' or '1'
end

-- The first job of a tenant's queue that workers of these base models can run (nil: of any); nil: none of the first `most`. Also
-- how many of `most` are left: 0 means that there may be more behind.
local function first_fitting(t, pool, models, most)
  local queue, at = P .. 'rq:' .. pool .. ':' .. t, 0
  while most > 0 do
    local id = call('ZRANGE', queue, fmt(at), fmt(at))[1]
    if not id or not models then return id, most end
    local base = call('HGET', P .. 'job:' .. id, 'base')  -- jobs of before have none
    if not base or base == '' or models[base] then return id, most end
    at, most = at + 1, most - 1
  end
  return nil, 0
end

-- A worker that has left or was lost. Its record stays for a day, so that an operator can ask where it is; `register` keeps it.
local function worker_gone(id)
  local key = P .. 'worker:' .. id
  call('ZREM', P .. 'workers', id)
  if call('EXISTS', key) == 0 then return end  -- an orphan of `workers` gets no record
  call('HSET', key, 'state', 'gone')
  -- What an operator said of it holds until it is taken back, however long it is away.
  if call('HGET', key, 'cordoned') ~= '1' then call('PEXPIRE', key, fmt(DAY_MS)) end
end
