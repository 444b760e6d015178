#!lua
-- Claim (T3): the head of the queue of the tenant that is next in the ring. No allow-oom: a full Redis starts no new work.
-- What the worker has no model for it leaves where it is, for others: then the next that fits is the head.
-- ARGV: clock, worker, slot, claim_id (the same until the agent has an answer), lease_ms, number of pools (≤ 8), pools…
-- Replies: JOB id epoch spec ckpt_uri ckpt_sha ckpt_step attempt ooms want kind tenant pool adapter files waited_ms expiry
--   replayed 0|1 | NONE (nothing written, or only orphans taken out) | STALE | DRAIN | UNKNOWN (register again)
local worker, slot, claim_id, lease, n = arg(), arg(), arg(), num(arg()), num(arg())
if claim_id == '' or n > 8 then return {'BADARG', 'claim_id or number of pools'} end
local wkey = P .. 'worker:' .. worker
local w = call('HMGET', wkey, 'state', 'cid:' .. slot, 'cjob:' .. slot, 'cep:' .. slot, 'models')
if not w[1] or w[1] == 'gone' then return {'UNKNOWN'} end

-- Checkpoint and want too, or a replayed claim would silently train from the start (trap 7).
local function reply(j, replayed)
  return {'JOB', j.id, j.epoch, call('GET', P .. 'spec:' .. j.id), j.ckpt_uri or '', j.ckpt_sha or '', j.ckpt_step or '0',
          j.attempt, j.ooms, j.want, j.kind, j.tenant, j.pool, j.adapter, j.files,
          fmt(math.max(0, num(j.started_ms) - num(j.enter_ms))), j.lease_ms, replayed}
end
if w[2] == claim_id then
  local j = job(w[3])
  return owned(j, worker, w[4]) and reply(j, '1') or {'STALE'}
end
if w[1] == 'draining' then return {'DRAIN'} end

local models  -- nil: the worker did not say, so it gets everything
if w[5] and w[5] ~= '' then
  models = {}
  for name in string.gmatch(w[5], '%S+') do models[name] = true end
end
local passes = 256  -- jobs that a claim may pass over, so that it stays short; what lies behind them is not seen

-- A member of the queue that is no READY job of it: `state` is the truth, so it goes, and with a job that is gone all its places.
local function strike(id, j, t, pool)
  call('ZREM', P .. 'rq:' .. pool .. ':' .. t, id)
  if not j or j.pool ~= pool or not belongs(j, 'ready') then call('ZREM', P .. 'ready:' .. pool, id) end
  if j then return end
  call('ZREM', P .. 'inflight:' .. pool, id)
  call('ZREM', P .. 'twait:' .. t, id)
end

-- Of the tenants that were passed over for one whose turn is `vt`, those that no worker present can serve keep up with it. Who
-- waits for a worker that is busy keeps its turn.
local function keep_up_all(passed, pool, vt)
  local present, left = #passed > 0 and present_models(pool), 256
  if not present then return end
  for _, t in ipairs(passed) do
    local id
    id, left = first_fitting(t, pool, present, left)
    if left == 0 then return end  -- what lies behind is not known, so nobody is moved for it
    if not id then keep_up(t, pool, vt) end
  end
end

for _ = 1, n do
  local pool = arg()
  local tries, passed = 8, {}  -- tenants that left the ring; tenants at its front with nothing for this worker
  while tries > 0 and passes > 0 do
    local t = call('ZRANGE', P .. 'ring:' .. pool, fmt(#passed), fmt(#passed))[1]
    if not t then break end
    local served, id = ring_sync(t, pool), nil
    if served then id, passes = first_fitting(t, pool, models, passes) end
    local j = id and job(id)
    if not served then
      tries = tries - 1
    elseif not id then
      passed[#passed + 1] = t
    elseif not j or j.state ~= 'READY' or j.tenant ~= t or j.pool ~= pool then
      strike(id, j, t, pool)
      passes = passes - 1
    else
      -- An epoch that grows whatever the clock does and whatever writes were lost (trap 5).
      local epoch = fmt(math.max(num(j.epoch) + 1, now))
      local vt = num(call('HGET', P .. 'tenant:' .. t, 'vt:' .. pool))
      call('HSET', CFG, 'vt:' .. pool, fmt6(math.max(num(call('HGET', CFG, 'vt:' .. pool)), vt)))
      leave(j)
      put(j, 'epoch', epoch, 'attempt', fmt(num(j.attempt) + 1), 'worker', worker, 'lease_ms', fmt(now + lease),
          'started_ms', fmt(now), 'charged', j.cost, 'beat_seq', '0', 'phase', '')
      if not j.first_ms then put(j, 'first_ms', fmt(now)) end
      enter(j, 'RUNNING')
      charge(t, pool, num(j.cost))
      keep_up_all(passed, pool, vt)
      call('HSET', wkey, 'cid:' .. slot, claim_id, 'cjob:' .. slot, id, 'cep:' .. slot, epoch)
      event(j, epoch, worker, 'claim')
      log(j, '0', 'INFO', 'job_start', 'Attempt ' .. j.attempt .. ' started on ' .. worker .. '.',
          worker .. '\n' .. (j.ckpt_step or '0'))
      if running(t) >= tenant(t).max_running then ring_sync_all(t) else ring_sync(t, pool) end
      return reply(j, '0')
    end
  end
end
return {'NONE'}
