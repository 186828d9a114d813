#!lua flags=allow-oom
-- Take a turn of a collection: book what queues said of references (`words`, as `semaphore.book` reads them), note queues that ask, and
-- lend references to those that have waited longest. A row with a `puller` is no queue that asks: this pull subscription receives from it up
-- to `count` items, until it has `limit`, or its own credit if that is empty. Returns what is lent (queue, name, subid, JID, sending, the
-- queue's time in ms after which it must not be used, the subid where a JID may have several), references to be looked at (queue, name, that
-- time, why the lock is to end), 1 if there may be more to lend, and for each puller that time and the names lent to it. `taken` begins the
-- names of references, and no other turn has it. A queue with a `count` of 0 is dropped. With `afresh` all queues are thought to admit all
-- subscribers.
-- ARGV: now revision frontend number retry taken afresh | words queue count level stamp hold holders puller limit
-- RETURNS: ok(loans(queue name subid jid sending deadline_ms whose) looks(queue name deadline_ms reason) more pulls(deadline_ms names))
--   stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
if arg.afresh ~= '' then redis.call('UNLINK', key.passed_over) end
local pullers = {}
for _, row in ipairs(rows) do
  local bounced = semaphore.book(row.words)
  write_buffer.flush()
  for _, each in ipairs(bounced) do delivery_failures.count(each[1], each[2]) end
  if row.puller ~= '' then
    pullers[#pullers + 1] = row
  elseif row.count == '0' then
    semaphore.drop(row.queue)
  elseif row.queue ~= '' then
    semaphore.ask(row.queue, row.count, row.level, row.stamp, row.hold, row.holders)
  end
end
return respond.make(nil, 0, function()
  local lent, more, pulled = {}, 0, {}
  if call.caller_sends then lent, more = semaphore.lend() end
  for i, row in ipairs(pullers) do
    pulled[i] = semaphore.lend_to_puller(row.puller, row.queue, tonumber(row.count), row.limit, tonumber(row.stamp), tonumber(row.hold))
  end
  return {lent, semaphore.looks(), more, pulled}
end)
