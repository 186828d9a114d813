#!lua flags=allow-oom
-- End entries of the outbox that have arrived, or that nobody is to get any more. With a `target` an item goes on, to that node: who has
-- refused it may have taken it at a later `attempt`.
-- ARGV: now revision number | entry target attempt
-- RETURNS: ok stale gone deleted | ok superseded
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local kind, name = outbox.split(row.entry)
  if row.target ~= '' then
    if outbox.last_attempt(row.entry) ~= row.attempt then return {'superseded'} end
    outbox_items.aim(name, row.target)
  elseif kind == 'child' then
    awaited.remove(string.match(name, '^([^/]+)/(.*)$'))
  else
    if kind == 'item' then outbox_items.remove(name) end
    redis.call('HDEL', key.outbox_records, row.entry)
    outbox.remove(row.entry)
  end
  return {'ok'}
end)
write_buffer.flush()
partition.save()
return respond.results(results)
