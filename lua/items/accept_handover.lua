#!lua
-- Take in items that come from other nodes, each once by its `ticket`, which is remembered for `once_ms` or until `expire_tickets` says
-- that the old node knows. An item keeps its id unless another has it here or may get it: then it gets one that the service
-- makes, so that both stay. With `former` its partition follows from an earlier number of them: it has to be found there.
-- ARGV: now revision frontend sent number retry dedupe dedupe_ms once_ms max_items node_full | item key by body ticket former
-- RETURNS: ok stale gone deleted | ok duplicate node-full
local refusal = partition.load()
if refusal then return refusal end
enqueue.prepare(rows)
local added = 0

local function admit(row)
  row.hints, row.once = '', ''
  -- That an item of its id is there says nothing: anybody may have published that.
  if dedupe_window.has(dedupe_window.HANDED, row.ticket) then return {'duplicate', row.item} end
  if enqueue.known(row.item) or enqueue.is_future_id(row) then row.item = '' end
  if not enqueue.room() then return {'node-full'} end
  added = added + 1
  dedupe_window.keep(dedupe_window.HANDED, row.ticket, tonumber(arg.once_ms))
  local tail, item = call.partition_tail, enqueue.append(row)
  if row.former == '1' then former_partition.stay(tail) end
  return {'ok', item}
end

local results = budget.each(rows, admit)
return respond.make(results, {}, added)
