#!lua flags=no-writes
-- Return the outcomes of items that the node keeps, for publishers that asked for them and for owners; for the same ones an empty one of an
-- item that has not ended; nothing of others.
-- ARGV: now revision number | sender owner item
-- RETURNS: ok stale gone deleted | ok([outcome])
local refusal = partition.load()
if refusal then return refusal end
local function may(row, jid)
  return row.owner == '1' or jids.bare(jid) == jids.bare(row.sender)
end

local function has_asked(row, position)
  local jid = position and redis.call('HGET', key.replies, position)
  return jid and may(row, outcome_record.asker(jid))
end

local function is_awaited(row)
  local position = items.positions_of({row.item})[1]
  return has_asked(row, position) or position and has_asked(row, redis.call('HGET', key.successors, position))
end

local results = budget.each(rows, function(row)
  local line = call.partition_before.replies and outcomes.get(row.item)
  if line and may(row, outcome_record.jid(line)) then return {'ok', line} end
  if call.partition_before.replies and is_awaited(row) then return {'ok', ''} end
  return {'ok'}
end)
return respond.results(results)
