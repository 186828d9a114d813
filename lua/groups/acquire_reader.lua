#!lua flags=allow-oom
-- Make links owners of reading the partition for their groups, each under an epoch and a new fence (E27, E28, EX11 to EX16). A link that
-- sends its `fence` renews its lease when half of it has passed. With `equal` the present epoch suffices.
-- ARGV: now revision | group epoch equal fence
-- RETURNS: ok stale gone deleted | ok(epoch fence until_ms) partition-owned(epoch) superseded too-many-subscriptions
local refusal = partition.load()
if refusal then return refusal end

local function describe(known)
  return {'ok', known.epoch, known.fence, known.ends}
end

local function renew(row)
  local known = reader_ownership.get(row.group)
  -- An expired lease is over, even if no sweep has seen it and nobody else has taken it: its epoch is forgotten.
  if not (known and known.active and known.fence == tonumber(row.fence)) then return {'superseded'} end
  if known.ends - call.partition_now <= call.partition_options.lock_ms / 2 then
    known.ends = call.partition_deadline
    reader_ownership.put(row.group, known)
  end
  return describe(known)
end

local function bind(row)
  local known = reader_ownership.get(row.group)
  local epoch = reader_ownership.grant_epoch(known, row.epoch, row.equal ~= '')
  if not epoch then return {'partition-owned', known and known.epoch or ''} end
  if not reader_ownership.room(row.group) then return {'too-many-subscriptions'} end
  known = {epoch = epoch, fence = partition.next_number(), ends = call.partition_deadline, active = true}
  reader_ownership.put(row.group, known)
  return describe(known)
end

local results = budget.each(rows, function(row) return (row.fence ~= '' and renew or bind)(row) end)
partition.save()
return respond.results(results)
