#!lua
-- Submit (T1): 1 to 64 jobs, all or none. No allow-oom: a full Redis takes no new work.
-- ARGV: clock, tenant, request_id, req_sha, ttl_ms, auto hash or '', auto_ttl_ms, repeat 0|1, number of jobs; for each job:
--   id, kind, pool, prio, delay_ms, max_fail, max_crash, uniq, cost, gpus, deadline_ms from now (0 = none), adapter, want,
--   spec, files separated by spaces, queued message, base model that its worker needs or '', adapters that it needs with spaces
--   between
-- Replies: OK ids… | BADARG text | DUP ids… | CONFLICT ids… | IDTAKEN id | NOTUNIQUE job | NOFILE id state-or-'' | NOADAPTER id |
--   QUOTA queued max
local t, request_id, sha, ttl = arg(), arg(), arg(), arg()
local auto, auto_ttl, repeated, n = arg(), arg(), arg(), num(arg())
if n < 1 or n > 64 then return {'BADARG', 'number of jobs'} end

local made = done_by(t, request_id, sha) or (auto ~= '' and repeated == '1' and done_by(t, 'auto:' .. auto, sha))
if made then return made end

local jobs, uniq_here, ids, new_pools, pools = {}, {}, {}, {}, call('SCARD', P .. 'pools')
for i = 1, n do
  local j = {id = arg(), kind = arg(), pool = arg(), prio = arg(), delay = num(arg()), max_fail = arg(), max_crash = arg(),
             uniq = arg(), cost = arg(), gpus = arg(), deadline = num(arg()), adapter = arg(), want = arg(), spec = arg(),
             files = arg(), message = arg(), base = arg(), uses = arg()}
  if not j.uses then return {'BADARG', 'too few arguments'} end
  if not new_pools[j.pool] and call('SISMEMBER', P .. 'pools', j.pool) == 0 then
    new_pools[j.pool], pools = true, pools + 1
    if pools > MAX_POOLS then return {'BADARG', 'too many pools'} end
  end
  if ids[j.id] or call('EXISTS', P .. 'job:' .. j.id) == 1 then return {'IDTAKEN', j.id} end
  if j.uniq ~= '' then
    local holder = call('GET', P .. 'uniq:' .. t .. ':' .. j.uniq) or uniq_here[j.uniq]
    if holder then return {'NOTUNIQUE', holder} end
    uniq_here[j.uniq] = j.id
  end
  for file in string.gmatch(j.files, '%S+') do
    local owner = call('HMGET', P .. 'file:' .. file, 'tenant', 'state')
    if owner[1] ~= t then return {'NOFILE', file, ''} end
    if owner[2] ~= 'READY' then return {'NOFILE', file, owner[2]} end
  end
  local lacking = lacking_adapter(t, j.uses)
  if lacking then return {'NOADAPTER', lacking} end
  jobs[i], ids[i], ids[j.id] = j, j.id, true
end
local waiting, limits = queued(t), tenant(t)
if waiting + n > limits.max_queued then return {'QUOTA', fmt(waiting), fmt(limits.max_queued)} end

local stamp = fmt(now)
call('SADD', P .. 'tenants', t)
remember(t, request_id, sha, ttl, table.concat(ids, ' '))
if auto ~= '' then remember(t, 'auto:' .. auto, sha, auto_ttl, table.concat(ids, ' ')) end
for _, new in ipairs(jobs) do
  local j = {id = new.id, tenant = t, pool = new.pool}
  put(j, 'v', '1', 'id', j.id, 'kind', new.kind, 'tenant', t, 'pool', new.pool, 'prio', new.prio, 'files', new.files,
      'adapter', new.adapter, 'rev', '0', 'want', new.want, 'epoch', '0', 'attempt', '0',
      'failures', '0', 'crashes', '0', 'preempts', '0', 'ooms', '0', 'fulls', '0', 'max_fail', new.max_fail,
      'max_crash', new.max_crash, 'seq', '0', 'cost', new.cost, 'gpus', new.gpus, 'uniq', new.uniq, 'base', new.base,
      'created_ms', stamp, 'enter_ms', fmt(now + new.delay), 'deadline_ms',
      new.deadline > 0 and fmt(now + new.deadline) or '0')
  call('SET', P .. 'spec:' .. j.id, new.spec)
  if j.uniq ~= '' then call('SET', P .. 'uniq:' .. t .. ':' .. j.uniq, j.id) end
  for file in string.gmatch(j.files, '%S+') do call('ZADD', P .. 'fileuse:' .. file, stamp, j.id) end
  if new.uses ~= '' then hold_adapters(j, new.uses) end
  call('ZADD', P .. 'tjobs:' .. t, stamp, j.id)
  if new.deadline > 0 then call('ZADD', P .. 'deadline', j.deadline_ms, j.id) end
  call('SADD', P .. 'pools', j.pool)
  requeue(j, new.delay)
  event(j, '', '', 'submit')
  log(j, '0', 'INFO', 'job_queued', new.message)
  ring_sync(t, j.pool)
end
return {'OK', unpack(ids)}
