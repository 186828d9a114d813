#!lua flags=allow-oom
-- Remove subscribers; with `release` give back what they hold, a bounded part per call (the row answers how much is left).
-- `which`: of a JID's subscriptions the one that is `named`, or else the only one; `this` very one; or `all` of them, in a `pool`
-- if that is given. The row answers too whether there are others, and the names of those that have ended.
-- With `born` it is part of that count, and of a pool belongs to no earlier one afterwards: nothing of the subscriber's lies
-- here. Who owns the partition came after it, for to be counted ends what is owned, and stays.
-- With `lapsed` only if the lease is over still. With `kept` the epoch of what the subscriber owned outlasts it (EX11); with a
-- `reason` it is told that it owns it no more.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants | subid named which pool release kept reason lapsed born
-- RETURNS: ok stale gone deleted | ok not-subscribed superseded subid-required subid-invalid
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed ranked ends
--- @include finish leave leases counts chosen
local refusal = partition.load()
if refusal then return refusal end

local function meant(row)
  if row.which == 'all' then return names.family(row.subid, row.pool) end
  if row.which == 'this' then return {row.subid} end
  local subid, refused = chosen.of(row.subid, row.named)
  -- Who is not known here may own another partition.
  if not subid and refused[1] == 'not-subscribed' then return {row.subid} end
  return {subid}, refused
end

-- Whether a JID has or holds anything here by other names than these.
local function others(row, those)
  local past = {}
  for _, subid in ipairs(those) do past[subid] = true end
  for _, subid in ipairs(names.family(row.subid, row.pool)) do
    if not past[subid] and (subscriptions.get(subid) or credit.held(subid) > 0) then return 1 end
  end
  return 0
end

local function superseded(row)
  if row.lapsed == '1' and subscriptions.get(row.subid) and not leases.ended(row.subid) then return true end
  if row.born == '' then return false end
  local who = owner.get()
  return who and who.subid == row.subid or not counts.join({subid = row.subid, pool = ''}, row.born)
end

local function go(row, those)
  local ended, left, room = {}, 0, leave.CHUNK
  for _, subid in ipairs(those) do
    if leave.remove(subid, row.kept ~= '', row.reason ~= '' and row.reason) then ended[#ended + 1] = subid end
    if row.release == '1' then
      local _, gone_back = leave.release(subid, 'released', row.lapsed == '1' and 'lapsed' or 'unavailable', room)
      room = room - gone_back
    end
    left = left + credit.held(subid)
    -- A count that it was out of is the last that it was in.
    if row.born ~= '' and row.pool ~= '' then shares.write({subid = subid, pool = ''}, {born = row.born}) end
  end
  return {#ended > 0 and 'ok' or 'not-subscribed', left, others(row, those), ended}
end

local results = {}
for i, row in ipairs(rows) do
  local those, refused = meant(row)
  results[i] = refused or superseded(row) and {'superseded'} or go(row, those)
end
return finish.reply(results, disown.notices, math.max(ending.freed, 1))
