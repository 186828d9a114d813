#!lua
-- Take in items that come from other nodes, each once by its ticket (`once`). An item keeps its id unless another has it here
-- or may get it: then the ticket is its id, so that both stay.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent seen journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants dedupe dedupe_ms once_ms max_items node_full | item key by body once
-- RETURNS: ok stale gone deleted | ok duplicate node-full
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held turns resting history handover sent seen journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
--- @include finish intake
local refusal = partition.load()
if refusal then return refusal end
intake.prepare(rows)
local results, added = {}, 0

local function admit(row)
  row.hints = ''
  if once.seen(row.once) then return {'duplicate', row.item} end
  if intake.known[row.item] or intake.foretells(row) then
    row.item = row.once
    if redis.call('HEXISTS', key.index, row.item) == 1 then return {'duplicate', row.item} end
  end
  if not intake.room() then return {'node-full'} end
  added = added + 1
  return {'ok', intake.append(row)}
end

for i, row in ipairs(rows) do results[i] = admit(row) end
return finish.reply(results, {}, added)
