#!lua flags=allow-oom
-- Register a subscription in a partition whose credit another one coordinates: here it gets items only with grants. The registration
-- number makes every earlier grant void. Returns what the subscriber holds here, and the version. The caller has to run `sweep` if items
-- may wait. A subscription through a collection names its pool; `several` says that it is not the JID's first.
-- ARGV: now revision number | subid jid sending registration pool several selector
-- RETURNS: ok stale gone deleted | ok superseded
local refusal = partition.load()
if refusal then return refusal end
local results, owned, pooled = {}, partition_owner.get(), false
for i, row in ipairs(rows) do
  if tonumber(row.registration) < grants.last(row.subid) then
    results[i] = {'superseded'}
  else
    local known = subscribing.find(row.subid)
    local subscriber = known or {subid = row.subid, jid = row.jid, bounces = 0, pool = row.pool ~= '' and row.pool or nil}
    grants.take(row.subid, row.registration)
    ownership_loss.end_of(row.subid, false)
    subscriber.limit, subscriber.qos, subscriber.batch = 0, subscriptions.parse_sending(row.sending)
    subscribing.put(subscriber, not known)
    skipped_items.set_selector(row.subid, row.selector)
    if row.several ~= '' then call.partition_multi = call.partition_multi or partition.turn_on('multi') end
    credit.update_turn(row.subid)
    pooled = pooled or row.pool ~= ''
    results[i] = {'ok', credit.lock_count(row.subid), partition.next_number()}
  end
end
partition.save()
local waits = pooled or call.partition_selects or owned and not partition_owner.get()
return respond.results(results, 0, waits and 1 or 0)
