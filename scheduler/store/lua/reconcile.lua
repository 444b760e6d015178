#!lua flags=allow-oom
-- Reconcile (T18): `state` is the truth; set members follow it. In a healthy store it fixes nothing.
-- `fileuse` and `adapteruse` of a live job count as its members in mode `set` only: a job that lost its hash must not hold a file
-- or an adapter for ever.
-- ARGV: clock, mode, lease_ms, and for mode `jobs`: ids (≤ 100) · for mode `set`: set name without prefix, ids (≤ 100)
-- Replies: OK fixes | BADARG
local mode, lease, fixes = arg(), num(arg()), 0
local function members(j)
  local want = {}
  for _, set in ipairs(SETS[j.state]) do want[set_key(set, j)] = set_score(set, j) end
  want[set_key('tjobs', j)] = j.created_ms
  if belongs(j, 'deadline') then want[P .. 'deadline'] = j.deadline_ms end
  if not TERMINAL[j.state] then
    for file in string.gmatch(j.files or '', '%S+') do want[P .. 'fileuse:' .. file] = j.created_ms end
    for adapter in string.gmatch(j.uses or '', '%S+') do want[P .. 'adapteruse:' .. adapter] = j.created_ms end
  end
  return want
end
local function keys_of(j)
  local all = {}
  for _, set in ipairs({'delayed', 'ready', 'rq', 'lease', 'inflight', 'paused', 'done', 'dead', 'twait', 'trun', 'tjobs',
                        'deadline'}) do
    all[#all + 1] = set_key(set, j)
  end
  return all
end

if mode == 'jobs' then
  for i = cursor + 1, math.min(#ARGV, cursor + 100) do
    local j = job(ARGV[i])
    if j and SETS[j.state] then
      if (j.state == 'RUNNING' or j.state == 'CANCELLING') and not j.lease_ms then
        put(j, 'lease_ms', fmt(now + lease))
      end
      local want = members(j)
      for _, key in ipairs(keys_of(j)) do
        local score = call('ZSCORE', key, j.id)
        if want[key] and (not score or num(score) ~= num(want[key])) then
          call('ZADD', key, want[key], j.id)
          fixes = fixes + 1
        elseif not want[key] and score then
          call('ZREM', key, j.id)
          fixes = fixes + 1
        end
      end
      ring_sync(j.tenant, j.pool)
    end
  end
elseif mode == 'set' then
  local key = P .. arg()
  for i = cursor + 1, math.min(#ARGV, cursor + 100) do
    local j = job(ARGV[i])
    if not j or not SETS[j.state] or not members(j)[key] then fixes = fixes + call('ZREM', key, ARGV[i]) end
  end
else
  return {'BADARG', 'unknown mode'}
end
return {'OK', fmt(fixes)}
